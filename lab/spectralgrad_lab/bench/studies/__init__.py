"""Measurements of one subject each, beside the grid of the benchmark."""
