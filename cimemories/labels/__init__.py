"""Labels of a dataset: votes, the matrix, survival, and labels under another rule."""
