"""Memory systems under test: what an assistant keeps of its user, and what of it reaches a prompt."""
