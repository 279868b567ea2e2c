"""The layers as functions of tensors, without state."""

from ..._lazy import listing
from .coloring import color, wct, whiten
from .cross_covariance import cross_covariance_pooling
from .dropcov import dropcov_rate
from .leading_rank import rankfeat
from .normalization import apply_matrix, normalize
from .pooling import covariance_pooling, upper_triangle
from .whitening_loss import whitening_mse
from .whitening_matrices import principal_projector, whitening_matrix

__dir__ = listing(__name__)
__all__ = [
    "apply_matrix",
    "color",
    "covariance_pooling",
    "cross_covariance_pooling",
    "dropcov_rate",
    "normalize",
    "principal_projector",
    "rankfeat",
    "upper_triangle",
    "wct",
    "whiten",
    "whitening_matrix",
    "whitening_mse",
]
