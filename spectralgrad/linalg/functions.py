"""The functions that are also names of the package itself, such as ``spectralgrad.eigh``: one line for each file."""

from .canonical_correlations import *
from .covariances import *
from .decompositions import *
from .eigenvalues import *
from .gaussian_distances import *
from .large_operators import *
from .least_squares import *
from .matrix_equations import *
from .matrix_functions import *
from .norms import *
from .point_sets import *
from .polar_factor import *
from .singular_values import *
from .spd_distances import *
from .spectral_measures import *
from .subspaces import *
