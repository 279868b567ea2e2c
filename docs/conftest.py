"""pytest reads the pages here, not the extension that needs griffe."""

collect_ignore = ["docstring_maths.py"]
