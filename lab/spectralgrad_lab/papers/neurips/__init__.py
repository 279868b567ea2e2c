"""Backpropagation-Friendly Eigendecomposition (NeurIPS 2019)."""
