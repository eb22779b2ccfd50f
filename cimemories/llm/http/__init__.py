"""Requests over HTTP: the openai SDK within bounds, and how many are in flight."""
