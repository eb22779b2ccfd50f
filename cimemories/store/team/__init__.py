"""A team on one record: people and their roles, what they did, and who decides which slice."""
