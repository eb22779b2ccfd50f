"""How the project reaches models: always over HTTP to an OpenAI-compatible server, real or simulated."""
