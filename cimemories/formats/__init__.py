"""Readers and writers of foreign file formats: each validates first, and imports all of a file or nothing."""
