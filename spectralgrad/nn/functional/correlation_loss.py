"""The loss of deep canonical correlation analysis (CCA): minus the sum of the canonical correlations of two views."""

from __future__ import annotations

from torch import Tensor

from ...dispatch.arguments import checked
from ...errors import raised_by
from ...linalg.canonical_correlations import correlations

__all__ = ["cca_loss"]


@checked
def cca_loss(X: Tensor, Y: Tensor, k: int | None = None, *, eps: float = 1e-3, where: str = "cca_loss") -> Tensor:
    r"""Compute the loss of deep CCA, minus the sum of the k largest canonical correlations.

    Args:
        X: features (*, n, p) of n samples in the first view; the mean is taken over a batch (*,).
        Y: features (*, n, q) of the same samples in the second view.
        k: number of correlations, by default all min(n − 1, p, q).
        eps: added to the diagonals of both covariances, which are divided by n − 1.
        where: name used in error messages.

    Returns:
        the loss, a scalar from −k to 0 with the real dtype of the features.

    Raises:
        ShapeError, ArgumentError, NonFiniteError: as in :func:`spectralgrad.canonical_correlations`.

    Example:
        >>> X = torch.randn(64, 3)
        >>> turned = X @ torch.linalg.qr(torch.randn(3, 3))[0]
        >>> cca_loss(X, turned, eps=0.0).round(decimals=3)       # all three directions agree
        tensor(-3.)

    Reference: Andrew, Arora, Bilmes and Livescu, Deep canonical correlation analysis, ICML 2013.
    """
    with raised_by(where):
        return -correlations(X, Y, k, eps, where).sum(-1).mean()
