"""Iterations that are differentiated step by step, or by an iteration of their own."""
