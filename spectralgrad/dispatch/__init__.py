"""How calls meet torch: eager, traced, transformed or taken over by another type."""
