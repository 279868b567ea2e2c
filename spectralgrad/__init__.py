"""Differentiable spectral operations for PyTorch.

Gradients are exact where they exist, including at repeated eigenvalues, and bounded where they do not exist.
"""

from typing import TYPE_CHECKING

from . import errors as errors
from . import linalg as linalg
from . import solvers as solvers
from ._lazy import export as _export
from ._version import __version__ as __version__
from .errors import *
from .linalg.functions import *
from .rescue import override_linalg as override_linalg
from .rules.base import *
from .rules.classes import *
from .rules.registry import methods as methods
from .rules.registry import register_method as register_method

# These subpackages load when they are first used. Type checkers see ordinary imports: a module-level __getattr__ would
# hide the types and accept misspelt names.
if TYPE_CHECKING:
    from . import diagnostics as diagnostics
    from . import nn as nn
    from . import optim as optim
    from . import training as training
else:
    from ._lazy import load as __getattr__  # noqa: F401

_export(__name__, "__version__", "diagnostics", "errors", "linalg", "nn", "optim", "solvers", "training")
