"""Small matrices on accelerators, by Triton. Nothing here imports Triton before it is used."""
