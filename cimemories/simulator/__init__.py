"""An OpenAI-compatible server on loopback whose models are made up, by a seeded policy."""
