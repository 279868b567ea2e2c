"""Mutation tests of the core's mathematics; see ``__main__``."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # a process with threads of OpenMP cannot be forked
