"""Newton–Schulz iterations for square roots, differentiated step by step or backward alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..autograd.functions import square_root
from ..autograd.functions.domain import Domain
from ..autograd.functions.rescaling import homogeneous
from ..autograd.hermitian import from_lower
from ..autograd.iterations import newton_schulz
from .base import ROOTS, Method, require

__all__ = ["SVDNewton", "NewtonSchulz"]


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
            return newton_schulz.newton_schulz(M, self.steps, self.normalize)[int(inverse)]
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
        checked = Domain(domain.operation, domain.positive, domain.rtol, clamp=True)  # negative: rounding error
        return root_at_any_scale(lambda M: self._root(M, inverse, checked), A, inverse, domain)

    def _root(self, M: Tensor, inverse: bool, domain: Domain) -> Tensor:
        value = square_root.root_and_eigenpairs(M.detach(), inverse, domain)[0]
        iterated = newton_schulz.newton_schulz(M, self.steps, self.normalize)[int(inverse)]
        # The iteration may diverge on a matrix made indefinite by rounding; such entries keep their value, without
        # gradient.
        return torch.where(torch.isfinite(iterated), value + (iterated - iterated.detach()), value)
