"""The Triton kernels themselves. Importing a module of this folder imports Triton."""
