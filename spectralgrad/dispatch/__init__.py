"""How calls interact with torch: eager mode, compilers, transforms, and types that override a call."""
