"""Roots, gradients and passes that the kernel computes in one call."""
