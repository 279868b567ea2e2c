"""SVD-Taylor: the geometric series of the gap, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..autograd.functions import spectral_function
from ..autograd.functions.domain import Domain
from ..autograd.pairwise import differences, floored, identity_mask
from ..precision import quotient, reciprocal, saturated
from .base import require
from .released_form import PublishedRule

__all__ = ["Taylor"]

_MOST_TERMS = 2**31 - 1  # the kernel counts them in 32 bits; a series of fewer has converged


@dataclass(frozen=True)
class Taylor(PublishedRule):
    r"""``svd-taylor``: the geometric series of :math:`1/(1-x)` truncated at degree K, summed in closed form.

    .. math:: \hat K_{ij}=\frac1{\lambda_i}\sum_{k=0}^{K}x^k=\frac{1-x^{K+1}}{\lambda_i-\lambda_j},
              \qquad x=\lambda_j/\lambda_i\le 1,

    extended skew-symmetrically to the other triangle; zero at ties. The bound is :math:`(K+1)/\lambda_i` (approached as
    :math:`x\to1`), the relative bias :math:`x^{K+1}`. For :math:`x\le 0` (an indefinite matrix) the exact gap is used,
    since there is no pole.

    Args:
        degree: K. The papers use 9 for whitening and 100 for covariance pooling.
        faithful: use the sign of the released code at ties, :math:`\hat K_{ij}=\hat K_{ji}=+(K+1)/\lambda` (claim G10).

    Example:
        >>> Taylor().gaps(torch.tensor([0.01, 0.02]))[1, 0].round(decimals=1)  # 100 (1 - 2⁻¹⁰)
        tensor(99.9000)

    Reference: Wang et al., Robust Differentiable SVD, TPAMI 2021, Eq. 9-12.
    """

    name: ClassVar[str] = "svd-taylor"
    summary: ClassVar[str] = "geometric series of degree 9 in closed form; bound (K+1)/λ"
    reference: ClassVar[str] = "TPAMI 2021, Eq. 9–12"
    set_by_layers: ClassVar[frozenset[str]] = frozenset({"degree"})
    _unchanged: ClassVar[bool] = True  # False in subclasses that replace a method or property
    degree: int = 9
    faithful: bool = False
    clamp: float | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        replaced = [
            callable(x) or isinstance(x, (property, classmethod)) for name, x in vars(cls).items() if name[:2] != "__"
        ]
        cls._unchanged = cls._unchanged and not any(replaced)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.degree >= 0, self, "degree", "≥ 0")

    @property
    def skew(self) -> bool:
        return not self.faithful

    @property
    def series_terms(self) -> int:
        return min(self.degree + 1, _MOST_TERMS) if self.skew else 0

    def root(self, A: Tensor, inverse: bool, domain: Domain) -> Tensor:
        direct = self.skew and self.clamp is None and self._unchanged
        found = spectral_function.root_by_series(A, self, inverse, domain) if direct else None
        return super().root(A, inverse, domain) if found is None else found

    def gaps(self, w: Tensor) -> Tensor:
        gap = differences(w)
        K = self.series(w, self.degree + 1) * torch.sign(gap)
        if not self.faithful:
            return K
        tied = (gap == 0) & ~identity_mask(w)
        size = floored(w)
        return torch.where(tied, saturated(quotient(self.degree + 1, size, size > 0)), K)

    @staticmethod
    def series(w: Tensor, terms: int) -> Tensor:
        r"""Return :math:`(1-x_+^{n})/|\lambda_i-\lambda_j|`, the sum of n terms of the series; positive and symmetric.

        Evaluated as :math:`-\mathrm{expm1}(n\,\mathrm{log1p}(-y))/(y\,\lambda)` with :math:`y=1-x`, which has full
        relative accuracy for x near 1; at y = 0 it is the limit :math:`n/\lambda`.
        """
        size = floored(w)
        live = size > 0
        y = quotient(differences(w).abs(), size, live)
        inside = (y > 0) & (y < 1)
        safe = torch.where(inside, y, 0.5)
        share = -torch.expm1(terms * torch.log1p(-safe)) / safe  # (1 - x^n)/(1 - x)
        share = torch.where(y >= 1, reciprocal(y, y >= 1), torch.where(inside, share, float(terms)))
        return saturated(quotient(share, size, live))

    def bound(self, w: Tensor) -> Tensor:
        return saturated((self.degree + 1) * _worst_reciprocal(w))


def _worst_reciprocal(w: Tensor) -> Tensor:
    """Return the largest 1/λ in each matrix (*,), with λ limited from below by :func:`floored`."""
    if w.shape[-1] < 2:
        return w.new_zeros(w.shape[:-1])
    size = floored(w)
    largest = reciprocal(size, size > 0).masked_fill(identity_mask(w), 0)
    return largest.amax((-2, -1))
