"""The method ``exact``, and methods whose gradient differentiates an iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..autograd.functions import spectral_function, square_root
from ..autograd.functions.domain import Domain, Spectrum
from ..autograd.functions.rescaling import homogeneous
from ..autograd.functions.scalar_functions import Function
from ..autograd.hermitian import from_lower
from ..autograd.iterations import newton_schulz
from ..autograd.iterations.power_iteration import PowerIteration
from ..autograd.iterations.released_power_iteration import ReleasedPowerIteration
from ..autograd.pairwise import differences
from ..autograd.polar import factor as polar_factor
from .base import FUNCTIONS, POLAR, ROOTS, GapMethod, Method, require
from .gaps import Taylor
from .pade import Pade

__all__ = ["Exact", "SVDPI", "PI", "SVDNewton", "NewtonSchulz"]


@dataclass(frozen=True)
class Exact(Method):
    r"""``exact``: the true gradient of a matrix function or polar factor, also at ties.

    .. math:: \partial L/\partial A = V\bigl(\Gamma\circ V^H\bar S V\bigr)V^H,\qquad
              \Gamma_{ij}=\frac{f(\lambda_i)-f(\lambda_j)}{\lambda_i-\lambda_j},\quad \Gamma_{ii}=f'(\lambda_i).

    Example:
        >>> Exact()
        Exact()

    Reference: Daleckiĭ and Kreĭn (1965); Higham, Functions of Matrices (2008), theorem 3.11.
    """

    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "divided differences: the true gradient, also at ties"
    reference: ClassVar[str] = "Daleckiĭ–Kreĭn 1965"
    operations: ClassVar[frozenset[str]] = FUNCTIONS | POLAR
    exact: ClassVar[bool] = True

    def root(self, A: Tensor, inverse: bool, domain: Domain) -> Tensor:
        return square_root.exact_root(A, inverse, domain)

    def function(self, A: Tensor, f: Function, domain: Domain) -> Tensor:
        return spectral_function.by_kernel(A, f, domain, lambda: Method.function(self, A, f, domain))

    def compose(self, A: Tensor, f: Function, spectrum: Spectrum) -> Tensor:
        return spectral_function.exact(A, f, spectrum, eigenpairs=Pade())

    def orthogonal(self, M: Tensor, rtol: float | None, special: bool) -> Tensor:
        return polar_factor.exact(M, rtol, special)


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


def root_at_any_scale(call: Callable[[Tensor], Tensor], A: Tensor, inverse: bool, domain: Domain) -> Tensor:
    """Return ``call(A)``, the root of positive semi-definite matrices or its inverse, by :func:`homogeneous`.

    ``call`` receives checked matrices. They are checked at their own scale, where rounding to subnormal numbers
    explains a negative eigenvalue. The gradient is made Hermitian before it is scaled back: a rounding error on the
    diagonal's imaginary part would become infinite.
    """
    M = domain.matrix(A)
    hermitian = lambda X: X if X is M else from_lower(X, domain.operation)  # noqa: E731
    result: Tensor = homogeneous(lambda X: call(hermitian(X)), (M,), ((1,), (-0.5 if inverse else 0.5,)))
    return result


@dataclass(frozen=True)
class NewtonSchulz(Method):
    r"""``newton-schulz``: the coupled iteration for :math:`A^{1/2}` and :math:`A^{-1/2}`, using matrix products only.

    .. math:: Y\leftarrow\tfrac12Y(3I-ZY),\qquad Z\leftarrow\tfrac12(3I-ZY)Z,\qquad
              Y_0=A/\nu,\ Z_0=I .

    Args:
        steps: number of iterations (5 in iSQRT-COV).
        normalize: :math:`\nu` is the trace or the Frobenius norm; both bring the spectrum into (0, 1].
        backward: ``"unrolled"`` differentiates the iteration; ``"lyapunov"`` solves
            :math:`SX+XS=\bar S` for the true gradient by a sign iteration.
        lyapunov_steps: number of iterations of that solve.
        on_residual: callback that receives the relative residual (*,) of the solve in the backward pass.

    Example:
        >>> NewtonSchulz(steps=10, normalize="frobenius")
        NewtonSchulz(steps=10, normalize='frobenius', backward='unrolled', lyapunov_steps=20)

    Reference: Li et al., iSQRT-COV, CVPR 2018; Song et al., ICCV 2021, Eq. 7-10; Song, Sebe and Wang, Fast
    Differentiable Matrix Square Root, ICLR 2022 (Lyapunov).
    """

    name: ClassVar[str] = "newton-schulz"
    summary: ClassVar[str] = "coupled Newton–Schulz iteration, 5 steps, trace pre-normalisation"
    reference: ClassVar[str] = "iSQRT-COV 2018; ICCV 2021, Eq. 7–10"
    operations: ClassVar[frozenset[str]] = ROOTS
    steps: int = 5
    normalize: Literal["trace", "frobenius"] = "trace"
    backward: Literal["unrolled", "lyapunov"] = "unrolled"
    lyapunov_steps: int = 20
    on_residual: Callable[[Tensor], None] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.steps >= 1, self, "steps", "≥ 1")
        require(self.lyapunov_steps >= 1, self, "lyapunov_steps", "≥ 1")

    def root(self, A: Tensor, inverse: bool, domain: Domain) -> Tensor:
        return root_at_any_scale(lambda M: self._root(M, inverse), A, inverse, domain)

    def _root(self, M: Tensor, inverse: bool) -> Tensor:
        if self.backward == "unrolled":
            return newton_schulz.newton_schulz(M, self.steps, self.normalize)[inverse]
        return newton_schulz.lyapunov_root(
            M, inverse, self.steps, self.normalize, self.lyapunov_steps, self.on_residual
        )


@dataclass(frozen=True)
class SVDNewton(Method):
    """``svd-newton``: the root from a solver, the gradient from Newton–Schulz iterations.

    Args:
        steps: number of iterations that are differentiated (10 in the paper).
        normalize: pre-normalisation, as in :class:`NewtonSchulz`.

    Example:
        >>> SVDNewton()
        SVDNewton(steps=10, normalize='trace')

    Reference: Song, Sebe and Wang, ICCV 2021, section 3.3.
    """

    name: ClassVar[str] = "svd-newton"
    summary: ClassVar[str] = "forward by a solver, gradient of 10 Newton–Schulz steps"
    reference: ClassVar[str] = "ICCV 2021, section 3.3"
    operations: ClassVar[frozenset[str]] = ROOTS
    steps: int = 10
    normalize: Literal["trace", "frobenius"] = "trace"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.steps >= 1, self, "steps", "≥ 1")

    def root(self, A: Tensor, inverse: bool, domain: Domain) -> Tensor:
        checked = replace(domain, clamp=True, dtype=None)  # what is negative is rounding error
        return root_at_any_scale(lambda M: self._root(M, inverse, checked), A, inverse, domain)

    def _root(self, M: Tensor, inverse: bool, domain: Domain) -> Tensor:
        value = square_root.root_and_eigenpairs(M.detach(), inverse, domain)[0]
        iterated = newton_schulz.newton_schulz(M, self.steps, self.normalize)[inverse]
        # The iteration may diverge on a matrix made indefinite by rounding; such entries keep their value, without
        # gradient.
        return torch.where(torch.isfinite(iterated), value + (iterated - iterated.detach()), value)
