"""The papers' experiments: data, networks, a trainer with records that survive anything, and comparisons."""
