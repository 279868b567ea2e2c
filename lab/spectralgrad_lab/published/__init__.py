"""The papers' published numbers."""
