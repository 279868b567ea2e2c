"""The forward pass: eigensolvers, the choice between them, and the fallbacks for matrices on which one fails.

The names in ``__all__`` are public. The others are for the rooms above: how they ask for decompositions, and for what
follows from one in a single call of the kernel.
"""

# isort: off
from .._lazy import list_public as _list_public
from ..dispatch.status import check, unchecked
from .batch_invariance import batch_invariant
from .call_counts import SolverReport, report, reset_report
from .decompose.fallbacks import eigh_ratio, svd_ratio
from .decompose.tuning import tune

from .decompose.choice import prepared as prepared
from .decompose.choice import prepared_svd as prepared_svd
from .decompose.operators import eigh as eigh
from .decompose.operators import eigvalsh as eigvalsh
from .decompose.operators import function_derivative as function_derivative
from .decompose.operators import inverse_root as inverse_root
from .decompose.operators import pencil_eigh as pencil_eigh
from .decompose.operators import pencil_eigvalsh as pencil_eigvalsh
from .decompose.operators import polar_factors as polar_factors
from .decompose.operators import root_and_eigenpairs as root_and_eigenpairs
from .decompose.operators import root_derivative as root_derivative
from .decompose.operators import rotations as rotations
from .decompose.operators import schur as schur
from .decompose.operators import svd as svd
from .decompose.operators import svdvals as svdvals
from .decompose.operators import triangular_sylvester as triangular_sylvester
from .kernel.gradients import eigh_gradient as eigh_gradient
from .kernel.gradients import polar_gradient as polar_gradient
from .kernel.gradients import svd_gradient as svd_gradient
from .kernel.roots import inverse_sums as inverse_sums
from .kernel.roots import positive_part as positive_part
from .kernel.scalar_functions import function_and_eigenpairs as function_and_eigenpairs
from .kernel.scalar_functions import scalar_derivative as scalar_derivative
from .kernel.singular_functions import compose_singular as compose_singular
from .kernel.singular_functions import derivative_of_values as derivative_of_values
from .kernel.singular_functions import divided_differences as divided_differences
from .kernel.singular_functions import function_of_values as function_of_values
from .kernel.singular_functions import singular_derivative as singular_derivative
from .ties import Ties as Ties
from .ties import groups as groups
from .ties import singular_groups as singular_groups
from .ties import split_eigenvalues as split_eigenvalues
from .ties import split_singular_values as split_singular_values

__all__ = [
    "SolverReport",
    "batch_invariant",
    "check",
    "eigh_ratio",
    "report",
    "reset_report",
    "svd_ratio",
    "tune",
    "unchecked",
]
_list_public(__name__)
