"""The derivatives: one rule per file, with its derivation in the module docstring."""
