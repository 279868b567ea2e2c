"""The derivatives of eigenvalues and eigenvectors, ordinary and generalised."""
