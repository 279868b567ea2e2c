"""Square roots without an eigendecomposition: a polynomial or a rational function forward, Lyapunov backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..autograd.functions.domain import Domain
from ..autograd.iterations import root_approximants
from .base import ROOTS, Method, require
from .newton_schulz import root_at_any_scale

__all__ = ["MTP", "MPA"]


@dataclass(frozen=True)
class _Approximant(Method):
    """Base of the two: the gradient of the root by a Lyapunov equation, from an approximate root."""

    operations: ClassVar[frozenset[str]] = ROOTS
    degree: int = 1
    lyapunov_steps: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.degree >= 1, self, "degree", "≥ 1")
        require(self.lyapunov_steps >= 1, self, "lyapunov_steps", "≥ 1")

    def approximant(self) -> root_approximants.Approximant:
        raise NotImplementedError

    def root(self, A: Tensor, inverse: bool, domain: Domain) -> Tensor:
        return root_at_any_scale(lambda M: self._root(M, inverse), A, inverse, domain)

    def _root(self, M: Tensor, inverse: bool) -> Tensor:
        return root_approximants.approximate_root(M, inverse, self.approximant(), self.lyapunov_steps)


@dataclass(frozen=True)
class MTP(_Approximant):
    r"""``mtp``: the matrix Taylor polynomial of the root, using matrix products only.

    With :math:`Z=I-A/\|A\|_F`,

    .. math:: A^{1/2}\approx\|A\|_F^{1/2}\sum_{k=0}^K\binom{1/2}k(-Z)^k,\qquad
              A^{-1/2}\approx\|A\|_F^{-1/2}\sum_{k=0}^K\binom{-1/2}k(-Z)^k .

    The gradient solves :math:`SX+XS=\bar S`, or :math:`BX+XB=-B^2\bar BB^2` for the inverse root B, by a sign
    iteration. A null direction gets the value :math:`0.176\,\|A\|_F^{1/2}` instead of zero (degree 10).

    The defaults come from the released code, ``torch_utils.py``: the series up to degree 10, whose coefficients also
    determine the approximant [5/5] of :class:`MPA`, and 8 iterations backward. It has this series for the root only.

    Args:
        degree: K.
        lyapunov_steps: number of iterations of the backward pass.

    Example:
        >>> import torch, spectralgrad as sg
        >>> sg.matrix_sqrt(torch.diag(torch.tensor([4.0, 9.0])), method="mtp").diagonal()
        tensor([2.0002, 3.0000])

    Reference: Song, Sebe and Wang, Fast Differentiable Matrix Square Root, ICLR 2022; and Inverse Square Root, TPAMI
    2023; released code: KingJamesSong/FastDifferentiableMatSqrt.
    """

    name: ClassVar[str] = "mtp"
    summary: ClassVar[str] = "Taylor polynomial of degree 10 forward, 8 steps of a Lyapunov iteration backward"
    reference: ClassVar[str] = "Song et al., ICLR 2022 and TPAMI 2023"
    degree: int = 10

    def approximant(self) -> root_approximants.Approximant:
        return root_approximants.taylor(self.degree)


@dataclass(frozen=True)
class MPA(_Approximant):
    r"""``mpa``: the matrix Padé approximant of the root, one linear system of matrices.

    With :math:`Y=A/\|A\|_F` and the [n/n] approximant :math:`P(y)/Q(y)` of :math:`y^{1/2}` at 1,

    .. math:: A^{1/2}\approx\|A\|_F^{1/2}\,Q(Y)^{-1}P(Y),\qquad A^{-1/2}\approx\|A\|_F^{-1/2}\,P(Y)^{-1}Q(Y).

    The gradient is computed as by :class:`MTP`. A null direction gets the value :math:`\|A\|_F^{1/2}/(2n+1)` instead of
    zero. The linear system has condition number up to :math:`4^n`, which limits the accuracy for large n.

    The defaults come from the released code, ``torch_utils.py``: [5/5], and 8 iterations backward. For the inverse
    root that code divides by the norm of the whole batch before it iterates; here each matrix has its own norm.

    Args:
        degree: n.
        lyapunov_steps: number of iterations of the backward pass.

    Example:
        >>> import torch, spectralgrad as sg
        >>> sg.matrix_sqrt(torch.diag(torch.tensor([4.0, 9.0])), method="mpa").diagonal()
        tensor([2.0000, 3.0000])

    Reference: as :class:`MTP`.
    """

    name: ClassVar[str] = "mpa"
    summary: ClassVar[str] = "Padé approximant [5/5] forward, 8 steps of a Lyapunov iteration backward"
    reference: ClassVar[str] = "Song et al., ICLR 2022 and TPAMI 2023"
    degree: int = 5

    def approximant(self) -> root_approximants.Approximant:
        return root_approximants.pade(self.degree)
