"""Gap rules from tensor-network codes, relative to the norm of the matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..autograd.pairwise import differences, identity_mask, norm, resolution
from ..precision import quotient, reciprocal, saturated
from .base import GapMethod, require

__all__ = ["Lorentzian", "Masked"]


@dataclass(frozen=True)
class Lorentzian(GapMethod):
    r"""``lorentzian``: the broadened gap :math:`\hat K=g/(g^2+\delta^2)`, with :math:`\delta` relative to the norm.

    It is smooth, zero at ties and bounded by :math:`1/(2\delta\|A\|)`; its relative bias is
    :math:`\delta^2/(g^2+\delta^2)`.

    Example:
        >>> Lorentzian(broadening=0.1).gaps(torch.tensor([1.0, 1.0, 2.0]))[0]
        tensor([ 0.0000,  0.0000, -0.9615])

    Reference: Liao et al., Differentiable programming tensor networks, PRX 9, 031041 (2019).
    """

    name: ClassVar[str] = "lorentzian"
    summary: ClassVar[str] = "g/(g² + δ²): smooth broadening, used in tensor networks"
    reference: ClassVar[str] = "Liao et al., PRX 2019"
    broadening: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.broadening < math.inf, self, "broadening", "> 0 and finite")

    def gaps(self, w: Tensor) -> Tensor:
        size = norm(w)[..., None, None]
        gap = quotient(differences(w).masked_fill(identity_mask(w), 0), size, size > 0)
        length = torch.hypot(gap, torch.full_like(gap, self.broadening))  # squares could underflow where K̂ is finite
        return saturated(quotient(gap / length / length, size, size > 0))

    def bound(self, w: Tensor) -> Tensor:
        size = norm(w)
        return saturated(reciprocal(size, size > 0) / (2 * self.broadening))


@dataclass(frozen=True)
class Masked(GapMethod):
    r"""``masked``: exact gaps, but zero for pairs of eigenvalues closer than ``tolerance`` times the norm.

    Args:
        tolerance: relative to :math:`\|A\|`; the default is :math:`\epsilon^{2/3}` of the working precision.

    Example:
        >>> Masked(tolerance=1e-2).gaps(torch.tensor([1.0, 1.001, 2.0]))[0]
        tensor([ 0.,  0., -1.])
    """

    name: ClassVar[str] = "masked"
    summary: ClassVar[str] = "exact gaps, zero between vectors that are numerically tied"
    reference: ClassVar[str] = "common practice in tensor-network libraries"
    tolerance: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.tolerance is None or 0 <= self.tolerance < math.inf, self, "tolerance", "≥ 0 and finite")

    def gaps(self, w: Tensor) -> Tensor:
        gap = differences(w)
        return reciprocal(gap, gap.abs() > self._tolerance(w) * norm(w)[..., None, None])

    def bound(self, w: Tensor) -> Tensor:
        size = norm(w)
        return saturated(reciprocal(size, size > 0) / max(self._tolerance(w), torch.finfo(w.dtype).tiny))

    def _tolerance(self, w: Tensor) -> float:
        return resolution(w.dtype) ** (2 / 3) if self.tolerance is None else self.tolerance
