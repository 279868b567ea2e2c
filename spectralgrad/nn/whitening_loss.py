"""The whitening loss of self-supervised learning as a module."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..dispatch.arguments import check_range, checked
from ..rules import Method
from .base import SpectralModule
from .functional.whitening_loss import check_partition, whitening_mse
from .functional.whitening_matrices import DEFAULT, OPERATION, Whitening

__all__ = ["WhiteningMSELoss"]


class WhiteningMSELoss(SpectralModule):
    r"""Whitening loss W-MSE for self-supervised learning: the distance between whitened embeddings of the same samples.

    .. math:: \operatorname{mean}\bigl(2-2\cos(y_n^i,y_n^j)\bigr)

    over samples n and pairs of views i < j, where the embeddings :math:`y` are whitened within random sub-batches.
    Whitened embeddings cannot collapse to a point, so no negative pairs are needed. The defaults come from the
    authors' code (``cfg.py`` in htdt/self-supervised). The module has no parameters and no running statistics.

    Args:
        sub_batch: number of samples that are whitened together, or None for all; the authors take twice the number of
            features.
        iterations: number of random partitions over which the loss is averaged.
        eps: added to the diagonal of the covariance before whitening.
        whitening: ``"cholesky"`` as in the authors' code, ``"zca"`` or ``"pca"``. ``"zca"`` with ``eps=0`` also
            works with fewer samples than features.
        method: method for the gradient, as in :class:`DecorrelatedBatchNorm2d`.
        normalize: divide each whitened embedding by its norm.

    Shape:
        views (V, n, d), or a list of V tensors (n, d), with V ≥ 2 → scalar.

    Raises:
        ArgumentError: an argument is out of range, or there are too few samples for ``"cholesky"``.
        ShapeError: there are fewer than two views, or their shapes differ.
        NonFiniteError: the embeddings contain NaN or infinity.

    Example:
        >>> net, loss = torch.nn.Linear(10, 4), WhiteningMSELoss(sub_batch=32)
        >>> x = torch.randn(64, 10)
        >>> views = [net(x + 0.1 * torch.randn_like(x)) for _ in range(2)]     # two augmentations
        >>> 0 < loss(views) < 2
        tensor(True)
        >>> few = WhiteningMSELoss(whitening="zca")                            # three samples of four features
        >>> few([view[:3] for view in views]).isfinite()
        tensor(True)

    Reference: Ermolov, Siarohin, Sangineto and Sebe, Whitening for Self-Supervised Representation Learning, ICML 2021.
    """

    sub_batch: int | None
    iterations: int
    eps: float
    normalize: bool

    @checked
    def __init__(
        self,
        sub_batch: int | None = 128,
        *,
        iterations: int = 1,
        eps: float = 0.0,
        whitening: Whitening = "cholesky",
        method: str | Method | None = None,
        normalize: bool = True,
    ) -> None:
        self.operation: str = OPERATION[whitening]
        super().__init__(DEFAULT[whitening] if method is None else method)
        check_range(eps, "eps", self.where, 0)
        check_partition(sub_batch, iterations, self.where)
        self.sub_batch, self.iterations, self.eps = sub_batch, iterations, eps
        self.whitening, self.normalize = whitening, normalize

    def forward(self, views: Tensor | Sequence[Tensor]) -> Tensor:
        return whitening_mse(
            views,
            sub_batch=self.sub_batch,
            iterations=self.iterations,
            eps=self.eps,
            whitening=self.whitening,
            method=self.method,
            normalize=self.normalize,
            watch=self.shown,
            where=self.where,
        )

    def extra_repr(self) -> str:
        """The settings shown by ``repr``."""
        return (
            f"sub_batch={self.sub_batch}, iterations={self.iterations}, eps={self.eps}, "
            f"whitening={self.whitening!r}, method={self._method_text()!r}"
        )
