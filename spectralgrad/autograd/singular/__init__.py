"""The derivatives of singular values, singular vectors and their functions."""
