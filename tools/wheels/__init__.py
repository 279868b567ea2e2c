"""The wheels of a release, for four platforms, built on one machine: see ``__main__.py``."""
