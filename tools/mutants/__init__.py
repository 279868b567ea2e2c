"""Mutation tests of the library's mathematics; see ``__main__``."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # a process in which OpenMP has started threads cannot be forked safely
