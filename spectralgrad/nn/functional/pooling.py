r"""Second-order pooling: a covariance and a function of it, from whichever side is smaller.

For centred features X (d×n, divided by √n) of rank r ≤ min(d, n − 1),

.. math:: (XX^\top)^p=X\,(X^\top X)^{p-1}X^\top,\qquad
          \log(XX^\top)=X\,\ell(X^\top X)\,X^\top,\quad \ell(\mu)=\ln(\mu)/\mu ,

on the range, so for n < d an n×n decomposition does what a d×d one would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ... import gram
from ...covariance import scaled_features
from ...errors import ShapeError, check_features
from ...functions import matrix_function, matrix_log, matrix_power
from ...methods import Exact, Method, resolve
from ...precision import full_precision, rank_tolerance
from .matrices import check_choice, check_finite, shifted

Side = Literal["auto", "channels", "positions"]


def operation_of(power: float | str) -> str:
    """What a method must serve for this power."""
    if power == "log":
        return "log"
    return {0.5: "sqrt", -0.5: "inv_sqrt"}.get(float(power), "power")


def covariance_pooling(
    X: Tensor,
    *,
    power: float | Literal["log"] = 0.5,
    center: bool = True,
    eps: float = 0.0,
    normalize: bool = False,
    output: Literal["triangle", "full"] = "triangle",
    side: Side = "auto",
    method: str | Method = "exact",
    shown: Callable[[Tensor], Tensor] = lambda M: M,
    where: str = "covariance_pooling",
) -> Tensor:
    r"""A function of each sample's covariance, :math:`f\bigl(\frac1n\sum_i(x_i-\mu)(x_i-\mu)^\top+\epsilon I\bigr)`.

    Args:
        X: features (N, C, *).
        power: f is this power, or ``"log"`` for the matrix logarithm; on the range if the covariance is singular.
        center: subtract the mean over positions.
        eps: ε.
        normalize: divide the result by its Frobenius norm (TPAMI, Eq. 29, for the power).
        output: the ``"triangle"`` on and above the diagonal (N, C(C+1)/2), row by row, or the ``"full"`` matrix
            (N, C, C).
        side: decompose C×C (``"channels"``) or n×n (``"positions"``); ``"auto"`` takes the smaller one if the method is
            exact and ε = 0.
        method: how the gradient is formed.
        shown: passed what is decomposed; what it returns takes its place.
        where: named in errors.

    Returns:
        in the type of X.

    Example:
        >>> X = torch.randn(2, 3, 4, 4)
        >>> S = covariance_pooling(X, output="full")
        >>> C = torch.stack([torch.cov(x.flatten(1), correction=0) for x in X])
        >>> torch.allclose(S @ S, C, atol=1e-6)
        True
        >>> covariance_pooling(X).shape
        torch.Size([2, 6])

    Reference: Li et al., MPN-COV, ICCV 2017; Wang et al., TPAMI 2021, Algorithm 3; Song et al., ICCV 2021, Eq. 1.
    """
    check_choice(output, ("triangle", "full"), "output", where)
    check_choice(side, ("auto", "channels", "positions"), "side", where)
    rule = resolve(method, operation_of(power))
    check_features(X, where)
    if X.dim() < 3:
        raise ShapeError(f"{where}: expected floating-point features (N, C, *), got {X.dtype} {tuple(X.shape)}")
    with full_precision(X):
        S = _pooled(_features(X, center, where), power, center, eps, side, rule, shown, where)
        if normalize:
            S = S / _norm(S)
        return (S if output == "full" else upper_triangle(S)).to(X.dtype)


def upper_triangle(S: Tensor) -> Tensor:
    """The entries on and above the diagonal (*, d(d+1)/2), row by row.

    Example:
        >>> upper_triangle(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
        tensor([1., 2., 3.])
    """
    d = S.shape[-1]
    rows, columns = torch.triu_indices(d, d, device=S.device)
    return S.flatten(-2).index_select(-1, rows * d + columns)


def _features(X: Tensor, center: bool, where: str) -> Tensor:
    """(N, C, n), centred and divided by √n."""
    if X.flatten(2).shape[-1] == 0:
        raise ShapeError(f"{where}: expected at least one position, got none")
    return scaled_features(X.flatten(2), center)


def _pooled(
    X: Tensor,
    power: float | str,
    center: bool,
    eps: float,
    side: Side,
    rule: Method,
    shown: Callable[[Tensor], Tensor],
    where: str,
) -> Tensor:
    d, n = X.shape[-2:]
    possible = isinstance(rule, Exact) and eps == 0
    if side == "positions" and not possible:
        raise ShapeError(f"{where}: side='positions' needs method='exact' and eps=0, got {rule.name!r} and eps={eps}")
    if side == "channels" or (side == "auto" and not (possible and n < d)):
        M = shown(shifted(X @ X.mT, eps))
        check_finite(M, where)
        return matrix_log(M, method=rule) if power == "log" else matrix_power(M, float(power), method=rule)
    products = shown(X.mT @ X)
    check_finite(products, where)
    return X @ _inner(gram.lifted(products) if center else products, power) @ X.mT


def _inner(products: Tensor, power: float | str) -> Tensor:
    """(XᵀX)^(p−1), or ℓ(XᵀX), on the range."""
    if power != "log":
        return matrix_power(products, float(power) - 1)

    def ratio(w: Tensor) -> Tensor:
        return w.log() / w

    def slope(w: Tensor) -> Tensor:
        return (1 - w.log()) / w.square()

    return matrix_function(products, ratio, slope, rtol=rank_tolerance(products.shape[-1], products.dtype))


def _norm(S: Tensor) -> Tensor:
    """The Frobenius norm (*, 1, 1), one where it is zero; scaled so that it neither overflows nor underflows."""
    size = S.detach().abs().amax((-2, -1), keepdim=True)
    size = torch.where(size > 0, size, 1)
    zero = (S.detach() == 0).all(-1).all(-1)[..., None, None]
    squared = (S / size).square().sum((-2, -1), keepdim=True)
    return size * torch.where(zero, 1, squared).sqrt()
