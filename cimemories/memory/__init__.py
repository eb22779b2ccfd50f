"""Memory systems under test: they store facts on the user, and decide which of them reach a prompt."""
