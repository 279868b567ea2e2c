r"""Gap rules, most of them from the papers. Each defines a matrix :math:`\hat K` and nothing else.

With a skew-symmetric :math:`\hat K`, the gradient of a matrix function is the true one times
:math:`\hat K_{ij}(\lambda_i-\lambda_j)`, entry by entry (claim G2). At an exact tie :math:`\hat K_{ij}=0` is the only
skew-symmetric choice that treats both eigenvectors alike. The papers' released code returns the same sign on both sides
instead, which ``faithful=True`` reproduces (claim G10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..autograd.pairwise import differences, identity_mask, norm
from ..errors import MethodError
from ..precision import quotient, reciprocal, saturated
from .base import require
from .released_form import PublishedRule, repaired

__all__ = ["Analytic", "Clip", "Trunc", "TopN"]


@dataclass(frozen=True)
class Analytic(PublishedRule):
    r"""``svd``: the textbook gradient, :math:`\hat K_{ij}=1/(\lambda_i-\lambda_j)`; infinite at ties.

    A matrix function acts on the range and needs no gaps within the null space, so rank deficiency alone does no harm.

    Args:
        faithful: repair overflow as the released code of ICCV 2021 does for MPN-COV: at a tie both :math:`\hat K_{ij}`
            and :math:`\hat K_{ji}` become the largest finite entry. That code also sets ``clamp=2.2e-16``.
        clamp: eigenvalues below this number are set to it, see :class:`PublishedRule`.
        stop: choose eigenpairs as the released whitening layers of NeurIPS 2019 and TPAMI 2021 do for their baseline:
            from the largest eigenvalue to the first that is at most ``stop``, which is the layer's :math:`\epsilon`;
            if all are larger, as for every covariance of full rank, only the leading pair. The inverse root is then
            :math:`\lambda_1^{-1/2}v_1v_1^H`, which has no derivative where :math:`\lambda_1=\lambda_2`. With None
            (default) all are used. Not available for ``svd``, nor together with ``clamp``.

    Example:
        >>> import spectralgrad as sg
        >>> Analytic().gaps(torch.tensor([1.0, 3.0]))
        tensor([[ 0.0000, -0.5000],
                [ 0.5000,  0.0000]])
        >>> sg.matrix_inv_sqrt(torch.diag(torch.tensor([4.0, 1.0])), method="svd:stop=0.01").diagonal()
        tensor([0.5000, 0.0000])

    Reference: Ionescu, Vantzos and Sminchisescu, ICCV 2015; what torch.linalg.eigh does.
    """

    name: ClassVar[str] = "svd"
    summary: ClassVar[str] = "the textbook gradient 1/(λi − λj); NaN at ties"
    reference: ClassVar[str] = "Ionescu et al., ICCV 2015"
    filters_gauge: ClassVar[bool] = False
    saturates: ClassVar[bool] = False
    faithful: bool = False
    clamp: float | None = None
    stop: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.stop is None or 0 <= self.stop < math.inf, self, "stop", "≥ 0 and finite")
        require(self.stop is None or self.clamp is None, self, "stop", "without clamp")

    @property
    def skew(self) -> bool:
        return not self.faithful

    @property
    def unscaled(self) -> bool:
        """True for the released baseline, in which a run that diverges is to be seen to fail."""
        return self.stop is not None

    @property
    def keeps_all(self) -> bool:
        return self.stop is None

    def kept(self, A: Tensor, w: Tensor, V: Tensor) -> Tensor | None:
        if self.stop is None:
            return None
        small = (w <= self.stop).sum(-1, keepdim=True)
        first = torch.where(small > 0, small, w.shape[-1]) - 1  # of the ascending eigenvalues that are kept
        return torch.arange(w.shape[-1], device=w.device) >= first

    def decompose_svd(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.stop is not None:
            raise MethodError(f"method {self.name!r}: stop is for eigenvalues; it is not available for svd")
        return super().decompose_svd(M)

    def gaps(self, w: Tensor) -> Tensor:
        gap = differences(w)
        tied = gap == 0
        infinite = torch.where(tied, torch.inf, reciprocal(gap, ~tied))  # constant, so without gradient, at ties
        K = infinite.masked_fill(identity_mask(w), 0)
        return repaired(K) if self.faithful else K


@dataclass(frozen=True)
class Clip(PublishedRule):
    r"""``svd-clip``: :math:`\hat K_{ij}=\mathrm{clip}(1/(\lambda_i-\lambda_j),-T,T)`, zero at ties.

    Args:
        threshold: T, an absolute value as in the paper (100).
        relative: divide T by the spectral norm, which makes the rule scale-invariant.
        clamp: eigenvalues below this number are set to it, see :class:`PublishedRule`.

    Example:
        >>> Clip().gaps(torch.tensor([1.0, 1.001, 3.0]))[1]
        tensor([100.0000,   0.0000,  -0.5003])

    Reference: Wang et al., Robust Differentiable SVD, TPAMI 2021, section 3.5.
    """

    name: ClassVar[str] = "svd-clip"
    summary: ClassVar[str] = "1/(λi − λj) clipped at ±100"
    reference: ClassVar[str] = "TPAMI 2021, section 3.5"
    threshold: float = 100.0
    relative: bool = False
    clamp: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.threshold > 0, self, "threshold", "> 0")

    def gaps(self, w: Tensor) -> Tensor:
        gap, limit = differences(w), self.bound(w)[..., None, None]
        exact = gap.abs() * limit > 1
        return torch.where(exact, reciprocal(gap, exact), torch.sign(gap) * limit)

    def bound(self, w: Tensor) -> Tensor:
        limit = w.new_full(w.shape[:-1], self.threshold)
        if not self.relative:
            return limit
        size = norm(w)
        return saturated(quotient(limit, size, size > 0))


@dataclass(frozen=True)
class Trunc(Clip):
    r"""``svd-trunc``: :class:`Clip` with the large threshold :math:`10^{10}` of the ICCV paper.

    ``faithful=True`` evaluates Eq. 12 as printed: at a tie 1/0 is :math:`+\infty` on both sides, so
    :math:`\hat K_{ij}=\hat K_{ji}=+T`, which is not skew-symmetric (claim P8).

    Example:
        >>> Trunc(faithful=True).gaps(torch.tensor([1.0, 1.0]))
        tensor([[0.0000e+00, 1.0000e+10],
                [1.0000e+10, 0.0000e+00]])

    Reference: Song, Sebe and Wang, ICCV 2021, Eq. 12.
    """

    name: ClassVar[str] = "svd-trunc"
    summary: ClassVar[str] = "1/(λi − λj) truncated at ±1e10"
    reference: ClassVar[str] = "ICCV 2021, Eq. 12"
    threshold: float = 1e10
    faithful: bool = False

    @property
    def skew(self) -> bool:
        return not self.faithful

    def gaps(self, w: Tensor) -> Tensor:
        K = super().gaps(w)
        if not self.faithful:
            return K
        tied = (differences(w) == 0) & ~identity_mask(w)
        return torch.where(tied, self.bound(w)[..., None, None], K)


@dataclass(frozen=True)
class TopN(PublishedRule):
    r"""``svd-topn``: keep the ``keep`` largest eigenvalues and set the others to zero (Eq. 11); zero at ties.

    The gap between a kept eigenvalue :math:`\lambda_i` and a discarded one is therefore :math:`\lambda_i`. Discarded
    eigenpairs do not contribute to a matrix function; ``eigh`` returns all pairs, but only the kept ones have a
    gradient. Gaps among the kept eigenvalues are exact and may be arbitrarily small, so the paper's bound
    :math:`1/\lambda_N` does not hold (claim P23).

    Example:
        >>> TopN(keep=2).kept(torch.eye(3), torch.tensor([1.0, 2.0, 3.0]), torch.eye(3))
        tensor([False,  True,  True])

    Reference: Song, Sebe and Wang, ICCV 2021, Eq. 11 (200 of 256).
    """

    name: ClassVar[str] = "svd-topn"
    summary: ClassVar[str] = "only the 200 largest eigenvalues are used"
    reference: ClassVar[str] = "ICCV 2021, Eq. 11"
    keep: int = 200
    clamp: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.keep >= 1, self, "keep", "≥ 1")

    def gaps(self, w: Tensor) -> Tensor:
        cut = w.shape[-1] - self.keep
        if cut > 0 and self.clamp is None:  # with `clamp`, `replaced` has set the discarded ones already
            # select by value, because singular values come in descending order
            w = torch.where(w >= w.sort(-1).values[..., cut : cut + 1], w, 0)
        gap = differences(w)
        return reciprocal(gap, gap.abs() > torch.finfo(w.dtype).tiny)

    def kept(self, A: Tensor, w: Tensor, V: Tensor) -> Tensor | None:
        return self._leading(w)

    def replaced(self, w: Tensor) -> Tensor | None:
        """With ``clamp``, the discarded eigenvalues are set to it as well, as the released code does."""
        if self.clamp is None:
            return None
        return torch.where(self._leading(w), w.clamp_min(self.clamp), self.clamp)

    def _leading(self, w: Tensor) -> Tensor:
        d = w.shape[-1]
        return (torch.arange(d, device=w.device) >= d - self.keep).expand(w.shape)
