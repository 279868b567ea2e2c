"""The loss of deep canonical correlation analysis as a module."""

from __future__ import annotations

from torch import Tensor, nn

from ..dispatch.arguments import check_count, check_range, checked
from .functional.correlation_loss import cca_loss

__all__ = ["CCALoss"]


class CCALoss(nn.Module):
    r"""Loss of deep CCA: minus the sum of the k largest canonical correlations of two views.

    .. math:: -\sum_{i\le k}\sigma_i\bigl((C_x+\epsilon I)^{-1/2}\,C_{xy}\,(C_y+\epsilon I)^{-1/2}\bigr)

    Gradients are exact where correlations or eigenvalues of the covariances are equal, and finite for features that are
    linearly dependent, constant or zero, and for batches smaller than the number of features. Of each view the smaller
    side is decomposed, in double precision. The module has no parameters.

    Args:
        k: number of correlations, by default all min(n − 1, p, q).
        eps: ε, added to the diagonals of both covariances. In a batch that has no more samples than features, all
            correlations are 1 without it, and there is nothing to learn.

    Shape:
        features (n, p) and (n, q) of the same n ≥ 2 samples → scalar. With further dimensions in front, the mean over
        these batches.

    Raises:
        ArgumentError: ``k`` or ``eps`` is out of range.
        ShapeError: the shapes or dtypes do not fit together.
        NonFiniteError: the features contain NaN or infinity.

    Example:
        >>> first, second, loss = torch.nn.Linear(10, 4), torch.nn.Linear(6, 4), CCALoss(k=2)
        >>> x = torch.randn(64, 10)
        >>> -2 < loss(first(x), second(x[:, :6].tanh())) < 0
        tensor(True)

    Reference: Andrew, Arora, Bilmes and Livescu, Deep canonical correlation analysis, ICML 2013.
    """

    k: int | None
    eps: float

    @checked
    def __init__(self, k: int | None = None, *, eps: float = 1e-3) -> None:
        super().__init__()
        check_count(k, "k", type(self).__name__)
        check_range(eps, "eps", type(self).__name__, 0)
        self.k, self.eps = k, eps

    def forward(self, X: Tensor, Y: Tensor) -> Tensor:
        return cca_loss(X, Y, self.k, eps=self.eps, where=type(self).__name__)

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return f"k={self.k}, eps={self.eps}"
