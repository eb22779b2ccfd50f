"""Making the data: profiles, contexts, and the votes of the personas that settle each pair's label."""
