"""Tools that show whether a gradient can be trusted: inspection, a training monitor, conformance and fuzz tests."""

from .._lazy import export as _export
from ._doctor import *
from .inspection import *
from .monitor import *
from .records import *
from .smoothness import *
from .tie_warnings import *

_export(__name__)
