r"""The loss of maximum manifold capacity representations (MMCR) in self-supervised learning.

The views of a sample span a manifold, and its mean is the centroid. The nuclear norm of all centroids is large if they
are long, so that the views of a sample agree, and if they point in different directions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...autograd.functions.rescaling import homogeneous
from ...dispatch.arguments import check_range, checked
from ...errors import raised_by
from ...linalg import nuclear_norm
from ...precision import full_precision, reciprocal, widen
from .whitening_loss import stacked

__all__ = ["mmcr_loss"]


@checked
def mmcr_loss(
    views: Tensor | Sequence[Tensor], *, compression: float = 0.0, normalize: bool = True, where: str = "mmcr_loss"
) -> Tensor:
    r"""Compute the MMCR loss of several views of the same samples.

    .. math:: -\lVert C\rVert_*+\mathrm{compression}\cdot\frac1n\sum_b\lVert Z_b\rVert_*,\qquad
              c_b=\frac1V\sum_vz_b^v ,

    with the embeddings :math:`z_b^v` of the V views of sample b, of length one, the matrix :math:`Z_b` (V, d) of one
    sample and the matrix C (n, d) of the centroids. The gradient of a nuclear norm is the polar factor, which divides
    by no gap: equal, vanishing or duplicate embeddings need no ε.

    Args:
        views: embeddings (V, n, d) of V ≥ 2 views of the same n samples, or a list of V tensors (n, d).
        compression: weight of the second term, a number ≥ 0. The first term alone makes the views of a sample agree as
            well; lightly's default is 0.005.
        normalize: divide each embedding by its norm first. An embedding that is zero stays zero.
        where: name used in error messages.

    Returns:
        the loss, a scalar with the dtype of the embeddings.

    Raises:
        ShapeError: there are fewer than two views, or their shapes differ.
        ArgumentError: ``compression`` is negative.
        NonFiniteError: the embeddings contain NaN or infinity.

    Example:
        >>> z = torch.eye(3)
        >>> mmcr_loss([z, z])                                # orthogonal samples, whose views agree
        tensor(-3.)
        >>> collapsed = torch.ones(2, 3, 3, requires_grad=True)
        >>> loss = mmcr_loss(collapsed, compression=0.005)   # of equal embeddings
        >>> torch.autograd.grad(loss, collapsed)[0].isfinite().all()
        tensor(True)

    Reference: Yerxa, Kuang, Simoncelli and Chung, Learning efficient coding of natural images with maximum manifold
    capacity representations, NeurIPS 2023.
    """
    z = stacked(views, where)
    check_range(compression, "compression", where, 0)
    with full_precision(z), raised_by(where):
        wide = widen(z)
        if normalize:
            wide = homogeneous(_unit, (wide,), ((1,), (0,)), trailing=(1,))
        loss = -nuclear_norm(wide.mean(0))
        if compression > 0 and z.shape[1]:
            loss = loss + compression * nuclear_norm(wide.transpose(0, 1)).mean()
        return loss.to(z.dtype)


def _unit(z: Tensor) -> Tensor:
    """Divide vectors (*, d) by their norms; a zero vector stays zero and has no gradient."""
    squares = (z.conj() * z).real.sum(-1, keepdim=True)
    positive = squares > 0
    return z * reciprocal(torch.where(positive, squares, 1).sqrt(), positive)
