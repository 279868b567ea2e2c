"""The loss of maximum manifold capacity representations as a module."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..dispatch.arguments import check_range, checked
from .functional.capacity_loss import mmcr_loss

__all__ = ["MMCRLoss"]


class MMCRLoss(nn.Module):
    r"""MMCR loss for self-supervised learning: views of a sample agree, and samples point in different directions.

    .. math:: -\lVert C\rVert_*+\mathrm{compression}\cdot\frac1n\sum_b\lVert Z_b\rVert_*

    with the matrix :math:`Z_b` (V, d) of the views of sample b, of length one, and the matrix C (n, d) of their
    means. The module has no parameters. It decomposes through :func:`spectralgrad.nuclear_norm`, so collapsed, equal
    and zero embeddings have finite gradients, half types are computed in float32, and what the solver fails on is
    decomposed by another one.

    Args:
        compression: weight of the second term; lightly's default for its argument ``lmda`` is 0.005.
        normalize: divide each embedding by its norm first.

    Shape:
        views (V, n, d), or a list of V tensors (n, d), with V ≥ 2 → scalar.

    Raises:
        ArgumentError: ``compression`` is negative.
        ShapeError: there are fewer than two views, or their shapes differ.
        NonFiniteError: the embeddings contain NaN or infinity.

    Example:
        >>> net, loss = torch.nn.Linear(10, 4), MMCRLoss()
        >>> x = torch.randn(64, 10)
        >>> views = [net(x + 0.1 * torch.randn_like(x)) for _ in range(2)]     # two augmentations
        >>> loss(views) < 0
        tensor(True)

    Reference: Yerxa, Kuang, Simoncelli and Chung, Learning efficient coding of natural images with maximum manifold
    capacity representations, NeurIPS 2023.
    """

    compression: float
    normalize: bool

    @checked
    def __init__(self, compression: float = 0.0, *, normalize: bool = True) -> None:
        super().__init__()
        check_range(compression, "compression", type(self).__name__, 0)
        self.compression, self.normalize = compression, normalize

    def forward(self, views: Tensor | Sequence[Tensor]) -> Tensor:
        where = type(self).__name__
        return mmcr_loss(views, compression=self.compression, normalize=self.normalize, where=where)

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return f"compression={self.compression}, normalize={self.normalize}"
