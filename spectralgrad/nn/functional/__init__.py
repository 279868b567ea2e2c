"""The layers as functions of tensors, without state."""

from ..._lazy import export as _export
from .affine_map import *
from .capacity_loss import *
from .coloring import *
from .correlation_loss import *
from .cross_covariance import *
from .dropcov import *
from .leading_rank import *
from .normalization import *
from .pooling import *
from .whitening_loss import *
from .whitening_matrices import *

_export(__name__)
