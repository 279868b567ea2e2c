"""Small matrices on accelerators, by Triton. Nothing here imports Triton before a kernel is launched."""

from .availability import missing as missing
from .availability import state as state
from .long_svd import tall_svd as tall_svd
from .point_sets import cross_covariance as cross_covariance
from .point_sets import fit_distance as fit_distance
from .point_sets import point_gradients as point_gradients
from .small_eigh import eigh as eigh
from .small_polar import polar as polar
from .small_polar import polar_derivative as polar_derivative
from .small_roots import FAILED as FAILED
from .small_roots import INDEFINITE as INDEFINITE
from .small_roots import root as root
from .small_roots import root_derivative as root_derivative
from .small_svd import svd as svd
