"""pytest reads the pages here, not the extensions that need griffe and mkdocs."""

collect_ignore = ["docstring_maths.py", "mathml.py"]
