"""One training run: its configuration, its steps, its files."""
