"""What the papers' released code does around its gap rules: raised eigenvalues, and repaired infinities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import MethodError
from .base import GapMethod, require


class PublishedRule(GapMethod):
    r"""Base of the gap rules of the papers, which raise small eigenvalues to a constant first.

    Attributes:
        clamp: eigenvalues below this number are set to it before anything else, in the forward pass and in the gaps.
            A matrix function then acts on all eigenvalues, including the null space's, and eigenvalues that
            were raised are tied. TPAMI Algorithms 2 and 3 use the layer's :math:`\epsilon`, the ICCV code 2.2e-16. With
            None (default) eigenvalues are used as they are, and a matrix function acts on the range.

            A raised eigenvalue still passes its gradient on, as in the papers, so where eigenvalues are raised the
            gradient does not match the forward pass, and among several raised ones it depends on the basis that the
            solver chose. Negative eigenvalues are raised too, where the function allows them. ``rtol`` has no effect.
            ``svd`` has no such form.

    Example:
        >>> import spectralgrad as sg
        >>> A = torch.diag(torch.tensor([4.0, 1.0, 0.0]))
        >>> sg.matrix_inv_sqrt(A, method="svd-taylor:clamp=0.01").diagonal()
        tensor([ 0.5000,  1.0000, 10.0000])
        >>> sg.matrix_inv_sqrt(A, method="svd-taylor").diagonal()
        tensor([0.5000, 1.0000, 0.0000])
    """

    clamp: float | None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clamp is None or 0 < self.clamp < math.inf, self, "clamp", "> 0 and finite")

    def decompose_svd(self, M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.clamp is not None:
            raise MethodError(f"method {self.name!r}: clamp is for eigenvalues; it is not available for svd")
        return super().decompose_svd(M)

    def replaced(self, w: Tensor) -> Tensor | None:
        return None if self.clamp is None else w.clamp_min(self.clamp)


def repaired(K: Tensor) -> Tensor:
    r"""The gap matrix with the overflow repair of the ICCV code.

    :math:`+\infty` and NaN become the largest finite entry of the matrix, :math:`-\infty` the smallest.

    Example:
        >>> repaired(torch.tensor([[0.0, torch.inf], [-2.0, 3.0]]))
        tensor([[ 0.,  3.],
                [-2.,  3.]])
    """
    if K.shape[-1] == 0:
        return K
    finite = torch.where(K.isfinite(), K, 0)
    largest, smallest = finite.amax((-2, -1), keepdim=True), finite.amin((-2, -1), keepdim=True)
    return torch.where(K.isnan(), largest, torch.clamp(K, min=smallest, max=largest))
