r"""Cross-covariance pooling of tokens, with powers of the singular values (svPN).

For tokens X, Y (n×d, centred) the cross-covariance is :math:`M=\frac1nX^\top Y=U\Sigma V^\top`, which becomes
:math:`U\Sigma^\alpha V^\top`. The approximation of the paper finds the k leading triplets one after another by power
iteration, each on what the ones before leave, and divides the rest R by one number:

.. math:: \sum_{i\le k}\sigma_i^\alpha u_iv_i^\top+\frac{R}{\sigma_k^{1-\alpha}+10^{-5}},
          \qquad R=M-\sum_{i\le k}\sigma_iu_iv_i^\top .

Autograd differentiates through the iteration, as in the released code. No gap is divided by.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ...dispatch.arguments import check_count, check_range, checked
from ...dispatch.finite import check_finite
from ...errors import ShapeError, check_alike, check_features, raised_by
from ...linalg.singular_values import singular_value_function
from ...precision import full_precision, quotient, rank_tolerance, widen

__all__ = ["cross_covariance_pooling"]

Center = Literal["tokens", "entries", "none"]
_DAMPING = 1e-5  # added to the divisor of the rest in the released code


@checked
def cross_covariance_pooling(
    X: Tensor,
    Y: Tensor,
    *,
    power: float = 0.5,
    center: Center = "tokens",
    leading: int | None = None,
    iterations: int = 1,
    start: Tensor | None = None,
    where: str = "cross_covariance_pooling",
) -> Tensor:
    r"""A power of the singular values of the cross-covariance, :math:`U\Sigma^\alpha V^\top`, for each set of tokens.

    Args:
        X: tokens (*, n, d).
        Y: tokens (*, n, d), the same number.
        power: α, positive; on the range if the cross-covariance is singular.
        center: ``"tokens"`` subtracts the mean over tokens, which makes M the cross-covariance. ``"entries"`` subtracts
            the mean of all n·d entries, one number, as the released code does; ``"none"`` subtracts nothing.
        leading: None for all singular values, exactly; otherwise the number k of leading ones to find by power
            iteration, with the rest divided by one number (svPN of the paper, which takes k = 1).
        iterations: steps of power iteration for each of the k.
        start: where power iteration starts (d,); ones by default. It may be learned.
        where: name used in error messages.

    Returns:
        (*, d, d), with the dtype of ``X``.

    Raises:
        ShapeError: ``X`` and ``Y`` are not real tokens of one shape (*, n, d) with n ≥ 1, or ``start`` is not (d,).
        ArgumentError: ``power``, ``leading`` or ``iterations`` is out of range.
        NonFiniteError: the tokens contain NaN or infinity.

    Example:
        >>> X = torch.randn(2, 9, 3)
        >>> S = cross_covariance_pooling(X, X)          # for equal tokens the square root of their covariance
        >>> torch.allclose(S @ S, torch.stack([torch.cov(x.mT, correction=0) for x in X]), atol=1e-6)
        True
        >>> cross_covariance_pooling(X, 2 * X, leading=1).shape
        torch.Size([2, 3, 3])

    Reference: Xie et al., SoT: Delving deeper into classification head for transformer (So-ViT), arXiv 2104.10935, and
    its released code.
    """
    _check(X, Y, start, where)
    check_range(power, "power", where, 0, ends="()")
    check_count(leading, "leading", where, 1, X.shape[-1])
    check_count(iterations, "iterations", where)
    with full_precision(X):
        M = _centered(X, center).mT @ _centered(Y, center) / X.shape[-2]
        if leading is None:
            tolerance = rank_tolerance(M.shape[-1], M.dtype)
            with raised_by(where):
                return singular_value_function(M, lambda s: s**power, rtol=tolerance).to(X.dtype)
        check_finite(M, where)  # power iteration would return NaN
        v = torch.ones_like(M[0, 0]) if start is None else start.to(M.dtype)
        return _approximate(M, power, leading, iterations, v).to(X.dtype)


def _check(X: Tensor, Y: Tensor, start: Tensor | None, where: str) -> None:
    for name, tokens in {"X": X, "Y": Y, **({} if start is None else {"start": start})}.items():
        check_features(tokens, f"{where}, {name}")
    if X.dim() < 3 or X.shape != Y.shape or X.shape[-2] == 0:
        raise ShapeError(
            f"{where}: expected tokens X and Y (B, *, n, d) of one shape with n ≥ 1, "
            f"got {tuple(X.shape)} and {tuple(Y.shape)}"
        )
    check_alike(X, Y, where)
    if start is not None and start.shape != X.shape[-1:]:
        raise ShapeError(f"{where}: expected start of shape ({X.shape[-1]},), got {tuple(start.shape)}")


def _centered(X: Tensor, center: Center) -> Tensor:
    X = widen(X)
    if center == "none":
        return X
    return X - X.mean(-2 if center == "tokens" else (-2, -1), keepdim=True)


def _approximate(M: Tensor, power: float, leading: int, iterations: int, start: Tensor) -> Tensor:
    rest, found, s = M, torch.zeros_like(M), M[..., :1, :1]
    for _ in range(leading):
        v = start.unsqueeze(-1)
        for _ in range(iterations):
            u = _unit(rest @ v)
            v = _unit(rest.mT @ u)
        s = u.mT @ rest @ v  # (*, 1, 1), not negative: it is the norm of restᵀu
        rest, found = rest - u @ s @ v.mT, found + u @ _power(s, power) @ v.mT
    return found + rest / (_power(s, 1 - power) + _DAMPING)


def _unit(x: Tensor) -> Tensor:
    """Vectors (*, d, 1) divided by their norms; zero stays zero, without gradient."""
    square = x.square().sum(-2, keepdim=True)
    positive = square.detach() > 0
    return quotient(x, torch.where(positive, square, 1).sqrt(), positive)


def _power(s: Tensor, power: float) -> Tensor:
    """The power where s > 0, otherwise zero without gradient."""
    positive = s.detach() > 0
    return torch.where(positive, torch.where(positive, s, 1) ** power, 0)
