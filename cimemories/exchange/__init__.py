"""Datasets and results out of a workspace, a dataset frozen at a content hash, and its card."""
