"""The program ``spectralgrad``. It reads its command line, and prints help, without torch.

Python imports a package before a module in it, and ``import spectralgrad`` imports torch, which takes seconds. So the
package is put in place here with its ``__init__`` put off; ``spectralgrad.cli`` has it run when a command needs it.
"""

import sys
from importlib.util import find_spec, module_from_spec


def main() -> int:
    """Run the command line and return its exit status."""
    spec = None if "spectralgrad" in sys.modules else find_spec("spectralgrad")
    if spec is not None:
        sys.modules["spectralgrad"] = module_from_spec(spec)
    from spectralgrad.cli import main

    return main()
