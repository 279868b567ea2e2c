"""The named gradient methods, each a frozen dataclass, and the registry that looks them up by name."""

from .._lazy import export as _export
from .base import *
from .classes import *
from .pade import robust_pade as robust_pade
from .registry import METHODS as METHODS
from .registry import Defaults as Defaults
from .registry import methods as methods
from .registry import named as named
from .registry import register_method as register_method
from .registry import resolve as resolve
from .registry import spelling as spelling

_export(__name__)
