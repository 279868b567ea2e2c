"""Writing files, terminal encodings, values from text, and entry points of other packages."""
