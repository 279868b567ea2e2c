"""The public functions: decompositions, matrix functions, rotations, singular values, covariances, distances."""

from .._lazy import export as _export
from ..autograd.iterations.newton_schulz import LyapunovResult as LyapunovResult
from .decompositions import EighResult as EighResult
from .decompositions import SVDResult as SVDResult
from .functions import *
from .least_squares import LeastSquaresResult as LeastSquaresResult
from .lyapunov_equation import lyapunov as lyapunov
from .matrix_iterations import newton_schulz as newton_schulz
from .point_sets import ProcrustesResult as ProcrustesResult

_export(__name__)
