"""The loop of a run: steps, tests, progress, failures, and what is measured."""
