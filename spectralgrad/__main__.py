"""Runs the command line for ``python -m spectralgrad``."""

import sys

from .cli import main

sys.exit(main())
