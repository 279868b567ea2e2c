r"""Covariances of features, and their roots from the smaller side.

The covariance of d channels over N positions has rank at most min(d, N − 1). With centred features X and
:math:`g(\mu)=1/(\sqrt{\mu+\epsilon}+\sqrt\epsilon)`,

.. math:: (XX^H+\epsilon I)^{1/2}=\sqrt\epsilon\,I+X\,g(X^HX)\,X^H ,

so for N < d an N×N decomposition does what a d×d one would.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from . import gram, transforms
from .errors import ShapeError, check_matrix
from .functions import matrix_function, matrix_inv_sqrt, matrix_sqrt
from .methods import Exact, Method, resolve
from .overrides import overridable
from .precision import full_precision, real_dtype, widen


@overridable
def covariance(X: Tensor, *, center: bool = True, correction: int = 0, eps: float = 0.0) -> Tensor:
    r"""The covariance of features, :math:`\frac1{N-c}\sum_n(x_n-\mu)(x_n-\mu)^H+\epsilon I`.

    Args:
        X: features (*, d, N): d channels, N positions or samples. Half types are accumulated in float32 and
            the result stays in float32.
        center: subtract the mean over positions.
        correction: c; 0 divides by N as the papers do, 1 by N − 1.
        eps: added to the diagonal.

    Returns:
        (*, d, d), Hermitian.

    Example:
        >>> covariance(torch.tensor([[1.0, -1.0], [2.0, -2.0]]))
        tensor([[1.0000, 2.0000],
                [2.0000, 4.0000]])

    Reference: ICCV 2021, Eq. 1.
    """
    check_matrix(X, "covariance")
    with full_precision(X):
        scaled = scaled_features(X, center, correction)
        return _shifted(scaled @ scaled.mH, eps)


@overridable
def covariance_sqrt(
    X: Tensor,
    *,
    center: bool = True,
    correction: int = 0,
    eps: float = 0.0,
    method: str | Method = "exact",
    side: Literal["auto", "channels", "positions"] = "auto",
    rtol: float | None = None,
) -> Tensor:
    r"""The square root of the covariance of features, from whichever of d×d and N×N is smaller.

    Args:
        X: features (*, d, N).
        center: as in :func:`covariance`.
        correction: as in :func:`covariance`.
        eps: as in :func:`covariance`.
        method: ``"exact"``, or any method of ``methods("sqrt")`` (then the channel side is used, as in the papers).
        side: which matrix to decompose; ``"auto"`` takes the smaller one.
        rtol: relative rank tolerance, as in :func:`matrix_sqrt`.

    Returns:
        (*, d, d) in the type of X, Hermitian positive semi-definite.

    Example:
        >>> X = torch.randn(64, 5, dtype=torch.float64)
        >>> S = covariance_sqrt(X)                       # decomposes a 5×5 matrix
        >>> torch.allclose(S @ S, covariance(X))
        True

    Reference: design of this library; the identity stands at the top of the module.
    """
    check_matrix(X, "covariance_sqrt")
    if side not in ("auto", "channels", "positions"):
        raise ShapeError(f"covariance_sqrt: expected side 'auto', 'channels' or 'positions', got {side!r}")
    rule = resolve(method, "sqrt")
    d, n = X.shape[-2:]
    if side == "auto":
        side = "positions" if n < d and isinstance(rule, Exact) else "channels"
    if side == "channels":
        return matrix_sqrt(covariance(X, center=center, correction=correction, eps=eps), method=rule, rtol=rtol).to(
            X.dtype
        )
    if not isinstance(rule, Exact):
        raise ShapeError(f"covariance_sqrt: side='positions' needs method='exact', got {rule.name!r}")
    with full_precision(X):
        if eps == 0 and transforms.reverse_only(X):
            return gram.root(X, center, _count(X, correction), rtol).to(X.dtype)
        return _from_positions(scaled_features(X, center, correction), center, eps, rtol).to(X.dtype)


def _from_positions(X: Tensor, center: bool, eps: float, rtol: float | None) -> Tensor:
    if eps == 0:
        return X @ matrix_inv_sqrt(gram.products(X, center), rtol=rtol) @ X.mH
    root = eps**0.5

    def g(mu: Tensor) -> Tensor:
        return 1 / ((mu.clamp_min(0) + eps).sqrt() + root)

    def dg(mu: Tensor) -> Tensor:
        shifted = (mu.clamp_min(0) + eps).sqrt()
        return -1 / (2 * shifted * (shifted + root).square())

    return _shifted(X @ matrix_function(X.mH @ X, g, dg) @ X.mH, root)


def scaled_features(X: Tensor, center: bool, correction: int = 0) -> Tensor:
    """Centred features divided by √(N − c), in working precision."""
    count = _count(X, correction)
    X = widen(X)
    if center:
        X = X - X.mean(-1, keepdim=True)
    # torch.jit.trace hands sizes over as tensors, whose root would be taken in single precision
    return X / (count.to(real_dtype(X.dtype)).sqrt() if isinstance(count, Tensor) else count**0.5)


def _count(X: Tensor, correction: int) -> int:
    count = X.shape[-1] - correction
    if count <= 0:
        raise ShapeError(
            f"covariance: expected more than {correction} positions, got features of shape {tuple(X.shape)}"
        )
    return count


def _shifted(C: Tensor, eps: float) -> Tensor:
    return C + eps * torch.eye(C.shape[-1], dtype=C.dtype, device=C.device) if eps else C
