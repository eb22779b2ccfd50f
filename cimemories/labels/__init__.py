"""What the labels of a dataset are made of: votes, the matrix, survival, what another rule would do."""
