"""The claims of the five papers as items that can be run: what is printed, what we compute, and a verdict."""
