"""Export of datasets and results, freezing a dataset at a content hash, and its card."""
