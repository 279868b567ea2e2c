"""Robust Differentiable SVD (TPAMI 2021)."""
