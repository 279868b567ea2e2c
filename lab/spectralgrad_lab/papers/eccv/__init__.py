"""Improving Covariance Conditioning of the SVD Meta-layer by Orthogonality (ECCV 2022)."""
