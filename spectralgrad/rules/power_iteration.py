"""Power iteration: SVD-PI in closed form, and the gradient of the iteration itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..autograd.functions.domain import Domain
from ..autograd.functions.scalar_functions import Function
from ..autograd.iterations.power_iteration import PowerIteration
from ..autograd.iterations.released_power_iteration import ReleasedPowerIteration
from ..autograd.pairwise import differences
from .base import FUNCTIONS, GapMethod, Method, require
from .taylor import Taylor

__all__ = ["SVDPI", "PI"]


@dataclass(frozen=True)
class SVDPI(GapMethod):
    r"""``svd-pi``: eigenvectors from a solver, gradient of K power iterations with differentiated deflation.

    K terms of the geometric series couple eigenvector i to the eigenvectors of smaller eigenvalues. Deflation couples
    it to the eigenvectors of larger eigenvalues too, by K − 1 terms (claim R12). Summed in closed form, with
    :math:`x=\min/\max` of the pair,

    .. math:: \hat K_{ij}=\frac{1-x^{K}}{\lambda_i-\lambda_j}\ (\lambda_j<\lambda_i),\qquad
              \hat K_{ij}=\frac{1-x^{K-1}}{\lambda_i-\lambda_j}\ (\lambda_j>\lambda_i),

    which is what Algorithm 1 computes step by step (``unrolled=True`` runs those steps, for comparison).
    Eigenpairs are processed in descending order until one of the three stopping rules of Algorithm 1 applies:
    :math:`\lambda_i\le\epsilon`, a deflated Rayleigh quotient off by more than 10 %, or 99.99 % of the energy reached.
    The remaining pairs are discarded; in a matrix function they are missing from the forward pass as well. As printed,
    the energy rule always discards the last pair of a regular matrix; ``energy=1`` keeps it.

    Args:
        iterations: K, the number of power iterations (19 in the paper; the released code sums 20 terms).
        eps: stop at eigenvalues up to this, the :math:`\epsilon` that the paper adds to the diagonal.
        energy: stop when the kept eigenvalues reach this fraction of the trace; 1 disables the rule.
        tolerance: stop when the relative error of the Rayleigh quotient reaches this; ``inf`` disables the rule.
        unrolled: run Algorithm 1 step by step and let autograd differentiate it.

    Example:
        >>> w = torch.tensor([0.5, 1.0], dtype=torch.float64)
        >>> SVDPI(iterations=2).gaps(w)
        tensor([[ 0.0000, -1.0000],
                [ 1.5000,  0.0000]], dtype=torch.float64)

    Reference: Wang et al., Backpropagation-Friendly Eigendecomposition, NeurIPS 2019, Algorithm 1.
    """

    name: ClassVar[str] = "svd-pi"
    summary: ClassVar[str] = "gradient of 19 power iterations with deflation, from the solver's vectors"
    reference: ClassVar[str] = "NeurIPS 2019, Algorithm 1"
    set_by_layers: ClassVar[frozenset[str]] = frozenset({"eps"})
    operations: ClassVar[frozenset[str]] = frozenset({"eigh"}) | FUNCTIONS
    filters_gauge: ClassVar[bool] = False
    iterations: int = 19
    eps: float = 1e-4
    energy: float = 1 - 1e-4
    tolerance: float = 0.1
    unrolled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.iterations >= 1, self, "iterations", "≥ 1")
        _require_stopping(self)

    @property
    def skew(self) -> bool:
        return False

    def gaps(self, w: Tensor) -> Tensor:
        gap = differences(w)
        down = Taylor.series(w, self.iterations)
        up = Taylor.series(w, self.iterations - 1)
        return torch.where(gap > 0, down, torch.where(gap < 0, -up, 0))

    @property
    def _algorithm(self) -> PowerIteration:
        return PowerIteration(self.iterations, self.eps, self.energy, self.tolerance)

    def kept(self, A: Tensor, w: Tensor, V: Tensor) -> Tensor | None:
        return self._algorithm.kept(A, w, V)

    def decompose(self, A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
        return self._algorithm.decompose(A, operation) if self.unrolled else super().decompose(A, operation)

    def function(self, A: Tensor, f: Function, domain: Domain) -> Tensor:
        return self._algorithm.function(domain.matrix(A), f) if self.unrolled else super().function(A, f, domain)

    def bound(self, w: Tensor) -> Tensor:
        return Taylor(degree=self.iterations - 1).bound(w)


def _require_stopping(method: SVDPI | PI) -> None:
    """Raise :class:`MethodError` unless the parameters of the three stopping rules are in their ranges."""
    require(0 <= method.eps < math.inf, method, "eps", "≥ 0 and finite")
    require(0 <= method.energy < math.inf, method, "energy", "≥ 0 and finite")
    require(method.tolerance >= 0, method, "tolerance", "≥ 0")


@dataclass(frozen=True)
class PI(Method):
    r"""``pi``: power iteration from a random start, in the forward pass and in the gradient.

    This is a baseline that the papers show to fail: when :math:`\lambda_2/\lambda_1` is near 1, the vectors have not
    converged after K steps. The stopping rules of :class:`SVDPI`, which compare with the solver's eigenvalues, discard
    such vectors, and the start depends only on ``seed`` and the size. So a matrix's result does not depend on the rest
    of its batch, and training survives. The papers' baseline has neither; ``faithful=True`` is what they released.

    Args:
        iterations: power iterations for each eigenvector.
        eps, energy, tolerance: stopping rules, as in :class:`SVDPI`.
        seed: seed of the random start.
        faithful: as the released layer: a new random start for each eigenvector in each call, from torch's generator
            (``torch.manual_seed``), and deflation that stops only when a Rayleigh quotient is larger than the one
            before, or below ``eps``. ``eigh`` returns zeros for the pairs after that. The gradient is the released
            one, which takes the deflated matrix for symmetric. ``energy``, ``tolerance`` and ``seed`` have no effect.

            Two calls differ, and so do equal matrices in a batch. ``torch.func.vmap`` needs
            ``randomness="different"``. Second derivatives of a layer draw another start, and so do compiled graphs
            (the same one with ``backend="aot_eager"`` or ``torch._inductor.config.fallback_random``).

    Example:
        >>> PI(iterations=50)
        PI(iterations=50, eps=0.0001, energy=0.9999, tolerance=0.1, seed=0, faithful=False)

    Reference: Wang et al., NeurIPS 2019, section 2.1, and its code.
    """

    name: ClassVar[str] = "pi"
    summary: ClassVar[str] = "power iteration from a random start, forward and backward (a baseline)"
    reference: ClassVar[str] = "NeurIPS 2019, section 2.1"
    set_by_layers: ClassVar[frozenset[str]] = frozenset({"eps"})
    operations: ClassVar[frozenset[str]] = frozenset({"eigh"}) | FUNCTIONS
    iterations: int = 19
    eps: float = 1e-4
    energy: float = 1 - 1e-4
    tolerance: float = 0.1
    seed: int = 0
    faithful: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.iterations >= 0, self, "iterations", "≥ 0")
        require(self.seed >= 0, self, "seed", "≥ 0")
        _require_stopping(self)

    @property
    def _algorithm(self) -> PowerIteration:
        kind = ReleasedPowerIteration if self.faithful else PowerIteration
        return kind(self.iterations, self.eps, self.energy, self.tolerance, self.seed)

    @property
    def unscaled(self) -> bool:
        """True for the released form, in which a run that diverges is to be seen to fail."""
        return self.faithful

    def decompose(self, A: Tensor, operation: str) -> tuple[Tensor, Tensor]:
        return self._algorithm.decompose(A, operation)

    def function(self, A: Tensor, f: Function, domain: Domain) -> Tensor:
        return self._algorithm.function(domain.matrix(A), f)
