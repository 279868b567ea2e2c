r"""Whitening and colouring without ε, on the range of the covariance, from the smaller of two matrices.

For centred features X (d×n, divided by √n) with thin singular value decomposition :math:`X=U\Sigma V^\top` of rank r,

.. math:: (XX^\top)^{-1/2}X=X\,(X^\top X)^{-1/2}=UV^\top,\qquad (XX^\top)^{1/2}=X\,(X^\top X)^{-1/2}X^\top ,

where the inverse roots are taken on the range. So for n < d an n×n decomposition replaces a d×d one.

Two precautions make the rank a property of the features rather than of the arithmetic. Products square the singular
values, so single precision is computed in double precision. And features are known only up to rounding, which moves
singular values by at most :math:`u\|X\|_F` (Weyl), where :math:`u` is the unit roundoff of their dtype and X includes
the mean; smaller singular values count as zero. A constant map therefore has rank zero, whatever its mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ... import solvers
from ...autograd.functions import covariance_root, scalar_functions
from ...autograd.functions.domain import Spectrum
from ...dispatch.host import on_host_without_double
from ...linalg.covariances import root_of_count, scaled
from ...precision import rank_tolerance
from ...rules import Exact

Watch = Callable[[Tensor], Tensor]


class _Decomposed(NamedTuple):
    """Features P (*, d, n) that are centred and scaled, the smaller product, its spectrum, and the scale (*, 1, 1)."""

    features: Tensor
    products: Tensor
    spectrum: Spectrum
    scale: Tensor
    channels: bool

    def function(self, f: scalar_functions.Function) -> Tensor:
        """f on the range of PPᵀ (*, d, d) or PᵀP (*, n, n)."""
        return Exact().compose(self.products, f, self.spectrum)


@on_host_without_double
def whitened_on_range(X: Tensor, watch: Watch | None = None, where: str = "whiten") -> Tensor:
    r"""Centre features and whiten them on their range: :math:`\sqrt n\,UV^\top`, white in r directions.

    Args:
        X: real features (*, d, n).
        watch: if given, called with the matrices to decompose; its result is decomposed instead.
        where: name used in error messages.

    Returns:
        (*, d, n) in double precision if ``X`` is in single precision.

    Example:
        >>> Y = whitened_on_range(torch.tensor([[1.0, 3.0], [5.0, 5.0], [0.0, 2.0]]))  # three channels, rank one
        >>> torch.linalg.svdvals(Y / 2**0.5).round(decimals=12)
        tensor([1., 0.], dtype=torch.float64)
    """
    d = _decomposed(X, watch, where)
    root = d.function(scalar_functions.INV_SQRT) * root_of_count(d.features)
    return root @ d.features if d.channels else d.features @ root


@on_host_without_double
def root_on_range(X: Tensor, watch: Watch | None = None, where: str = "color") -> Tensor:
    r"""The square root of the covariance of features, by the smaller side.

    Args:
        X, watch, where: as in :func:`whitened_on_range`.

    Returns:
        (*, d, d) in double precision if ``X`` is in single precision.

    Example:
        >>> root_on_range(torch.tensor([[1.0, -1.0], [2.0, 2.0], [0.0, 0.0]])).diagonal()
        tensor([1.0000, 0.0000, 0.0000], dtype=torch.float64)
    """
    d = _decomposed(X, watch, where)
    if d.channels:
        return d.function(scalar_functions.SQRT) * d.scale
    return d.features @ (d.function(scalar_functions.INV_SQRT) * d.scale) @ d.features.mT


def _decomposed(X: Tensor, watch: Watch | None, where: str) -> _Decomposed:
    unit, channels = torch.finfo(X.dtype).eps / 2, X.shape[-2] <= X.shape[-1]
    X = X.double()
    P, _, scale = scaled(X, True, 0, 0.0, channels)
    products = P @ P.mT if channels else P.mT @ P
    products = products if watch is None else watch(products)
    if not channels:
        products = covariance_root.lifted(products)
    # Rounding of the features, of the mean, and of the difference, each at most u‖X‖.
    noise = (3 * unit) ** 2 * (X.detach() / scale).square().mean(-1).sum(-1)
    return _Decomposed(P, products, _on_range(products, noise, where), scale, channels)


def _on_range(A: Tensor, noise: Tensor, where: str) -> Spectrum:
    """The eigenpairs of A, and which of them exceed both ``noise`` and the rounding error of the solver."""
    w, V = solvers.eigh(A.detach(), where)
    largest = w[..., -1:] if w.shape[-1] else w
    least = torch.maximum(noise.unsqueeze(-1), rank_tolerance(w.shape[-1], w.dtype) * largest)
    return Spectrum(w.clamp_min(0), V, w > least)
