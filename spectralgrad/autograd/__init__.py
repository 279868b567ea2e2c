"""How each operation is differentiated: one rule in each file, with its derivation."""
