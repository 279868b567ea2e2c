"""Spectral layers as ``torch.nn`` modules; the same operations without state are in ``functional``."""

from .._lazy import export as _export
from . import functional as functional
from .base import *
from .capacity_loss import *
from .coloring import *
from .conversion import *
from .correlation_loss import *
from .denoising import *
from .dropcov import *
from .fusion import *
from .orthogonal import *
from .pooling import *
from .token_pooling import *
from .whitening import *
from .whitening_loss import *

_export(__name__, "functional")
