"""Leaked messages: the gallery, one message, tables for papers, the basket."""
