"""Files, encodings of terminals, and entry points of other packages."""
