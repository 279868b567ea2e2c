"""The named gradient methods, each a frozen dataclass, and the registry that looks them up by name."""

from .._lazy import export as _export
from .base import *
from .classes import *
from .pade import robust_pade as robust_pade
from .registry import *

_export(__name__)
