r"""The whitening loss of self-supervised learning (W-MSE): the distance between whitened embeddings of the same images.

Whitening scatters the embeddings of a batch over a sphere, so they cannot collapse to one point, and no negative
pairs are needed: the loss is the mean distance of the positive pairs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from itertools import combinations

import torch
from torch import Tensor

from ...dispatch.arguments import check_count, check_range, checked
from ...errors import ArgumentError, ShapeError, check_features
from ...precision import full_precision, reciprocal, widen
from ...rules import Method
from .coloring import whiten
from .whitening_matrices import Whitening

__all__ = ["whitening_mse"]

Watch = Callable[[Tensor], Tensor]


@checked
def whitening_mse(
    views: Tensor | Sequence[Tensor],
    *,
    sub_batch: int | None = 128,
    iterations: int = 1,
    eps: float = 0.0,
    whitening: Whitening = "cholesky",
    method: str | Method | None = None,
    normalize: bool = True,
    generator: torch.Generator | None = None,
    watch: Watch | None = None,
    where: str = "whitening_mse",
) -> Tensor:
    r"""Compute the whitening loss W-MSE of several views of the same samples.

    .. math:: \operatorname*{mean}_{n,\,i<j}\Bigl\|\frac{y_n^i}{\|y_n^i\|}-\frac{y_n^j}{\|y_n^j\|}\Bigr\|^2
              =\operatorname{mean}\bigl(2-2\cos(y_n^i,y_n^j)\bigr) ,

    where :math:`y^i` are the embeddings of view i, whitened within sub-batches: a random partition of the samples, the
    same for all views. The defaults come from the authors' code (``cfg.py`` in htdt/self-supervised).

    Args:
        views: embeddings (V, n, d) of V ≥ 2 views of the same n samples, or a list of V tensors (n, d).
        sub_batch: number of samples that are whitened together; the last ones are distributed over the others. None
            whitens all of them together. The authors take twice the number of features.
        iterations: number of random partitions over which the loss is averaged.
        eps: added to the diagonal of the covariance before whitening.
        whitening: ``"cholesky"`` as in the authors' code, ``"zca"`` or ``"pca"``. With ``"zca"`` and ``eps=0`` the
            embeddings are whitened on their range, so that there may be fewer samples than features.
        method: method for the gradient, as in :class:`DecorrelatedBatchNorm2d`.
        normalize: divide each whitened embedding by its norm. Otherwise the loss is the mean squared error over all
            samples and features.
        generator: random number generator of the partitions.
        watch: as in :func:`whiten`; called once, with the first covariances.
        where: name used in error messages.

    Returns:
        the loss, a scalar with the dtype of the embeddings.

    Raises:
        ShapeError: there are fewer than two views, or their shapes differ.
        ArgumentError: ``sub_batch`` or ``iterations`` is out of range, or there are too few samples for Cholesky.
        NonFiniteError: the embeddings contain NaN or infinity.

    Example:
        >>> z = torch.randn(256, 32, dtype=torch.float64)
        >>> whitening_mse([z, z]).item()                     # views that agree
        0.0
        >>> turned = torch.linalg.qr(torch.randn(32, 32, dtype=torch.float64))[0]
        >>> whitening_mse([z, z @ turned], whitening="zca").item() > 0.1     # whitening does not undo rotations
        True

    Reference: Ermolov, Siarohin, Sangineto and Sebe, Whitening for Self-Supervised Representation Learning, ICML 2021.
    """
    z = stacked(views, where)
    _check(z, sub_batch, iterations, eps, whitening, where)
    if not z.shape[1]:
        return z.sum()
    options = {"eps": eps, "whitening": whitening, "method": method, "where": where}
    with full_precision(z):
        wide, losses = widen(z), []
        for _ in range(iterations):
            for part in _partition(wide, sub_batch, generator):  # (V, number, size, d)
                white = whiten(part.flatten(0, 1).mT, watch=watch, **options).mT  # type: ignore[arg-type]
                share = part.shape[1] * part.shape[2] / (z.shape[1] * iterations)
                losses.append(share * _distance(white.unflatten(0, part.shape[:2]), normalize))
                watch = None
        return torch.stack(losses).sum().to(z.dtype)


def stacked(views: Tensor | Sequence[Tensor], where: str) -> Tensor:
    """Return views (V, n, d) of the same samples; raise :class:`ShapeError` unless there are two at least."""
    if not isinstance(views, Tensor):
        if not isinstance(views, Sized):  # a generator
            raise ShapeError(f"{where}: expected a tensor (V, n, d) or a list of views, got {type(views).__name__}")
        for z in views:
            check_features(z, where)
        if len({(z.shape, z.dtype) for z in views}) > 1:
            shapes = ", ".join(f"{tuple(z.shape)} of {z.dtype}" for z in views)
            raise ShapeError(f"{where}: expected views of equal shape and dtype, got {shapes}")
        views = torch.stack(tuple(views)) if len(views) else torch.empty(0, 0, 0)
    check_features(views, where)
    if views.dim() != 3 or views.shape[0] < 2:
        raise ShapeError(f"{where}: expected at least two views (n, d), got shape {tuple(views.shape)}")
    return views


def check_partition(sub_batch: int | None, iterations: int, where: str) -> None:
    """Raise :class:`ArgumentError` unless ``iterations`` is an integer ≥ 1 and ``sub_batch`` one ≥ 2, or None."""
    check_count(iterations, "iterations", where)
    check_count(sub_batch, "sub_batch", where, 2)


def _check(z: Tensor, sub_batch: int | None, iterations: int, eps: float, whitening: str, where: str) -> None:
    check_partition(sub_batch, iterations, where)
    check_range(eps, "eps", where, 0)
    _, n, d = z.shape
    together = n if sub_batch is None else min(n, sub_batch)
    if whitening == "cholesky" and eps == 0 and 0 < together <= d:
        raise ArgumentError(
            f"{where}: expected more samples in a sub-batch than the {d} features for whitening='cholesky', "
            f"got {together}. Use whitening='zca', which works on the range, or a positive eps."
        )


def _partition(z: Tensor, size: int | None, generator: torch.Generator | None) -> list[Tensor]:
    """Divide the samples of (V, n, d) at random into sub-batches: at most two tensors (V, number, size, d)."""
    views, n, d = z.shape
    number = 1 if size is None else max(1, n // size)
    if number == 1:
        return [z.unsqueeze(1)]
    order = torch.randperm(n, generator=generator, device=z.device if generator is None else generator.device)
    shuffled, least, larger = z[:, order.to(z.device)], n // number, n % number
    first, rest = shuffled.split([larger * (least + 1), n - larger * (least + 1)], 1)
    parts = [first.reshape(views, larger, least + 1, d)] if larger else []
    return [*parts, rest.reshape(views, number - larger, least, d)]


def _distance(y: Tensor, normalize: bool) -> Tensor:
    """Return the mean squared distance of the pairs of views (V, *, d), of unit vectors if ``normalize``."""
    if normalize:
        squares = y.square().sum(-1, keepdim=True)
        positive = squares > 0  # a sample at the mean has no direction
        y = y * reciprocal(torch.where(positive, squares, 1).sqrt(), positive)
    pairs = list(combinations(y.unbind(), 2))
    distances = torch.stack([(a - b).square().sum(-1).mean() for a, b in pairs])
    return distances.mean() / (1 if normalize else y.shape[-1])
