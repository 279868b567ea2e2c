"""Say whether a gradient can be trusted."""
