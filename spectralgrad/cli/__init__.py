"""The command line ``spectralgrad``: the library's commands, and those that other installed packages add.

Nothing in this folder imports torch until a command runs, except for ``commands.py``.
"""

from .parser import COMMANDS
from .program import main

__all__ = ["COMMANDS", "main"]
