r"""Second-order pooling: a matrix function of the covariance, computed from the smaller of two matrices.

For centred features X (d×n, divided by √n) of rank r ≤ min(d, n − 1),

.. math:: (XX^\top)^p=X\,(X^\top X)^{p-1}X^\top,\qquad
          \log(XX^\top)=X\,\ell(X^\top X)\,X^\top,\quad \ell(\mu)=\ln(\mu)/\mu ,

on the range, so for n < d an n×n decomposition replaces a d×d one. If features are so large or small that their
products would overflow or underflow, the exact method divides them by a power of two σ. The result is then multiplied
by :math:`\sigma^{2p}` (power), or :math:`2\ln\sigma` is added to its eigenvalues (logarithm).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ...autograd.functions import covariance_root, scalar_functions
from ...autograd.functions.domain import Domain
from ...dispatch.arguments import check_range, checked
from ...errors import ArgumentError, ShapeError, check_features, check_square, raised_by
from ...linalg.covariances import of_shifted, scaled, scaled_features, shifted
from ...linalg.matrix_functions import matrix_log, matrix_power
from ...precision import full_precision, rank_tolerance
from ...rules import Exact, Method, resolve
from .pooling_heads import Head, check_head, in_head

__all__ = ["covariance_pooling", "upper_triangle"]

Side = Literal["auto", "channels", "positions"]


def operation_of(power: float | str) -> str:
    """The operation that a method must support for this power, as in ``methods(operation)``."""
    if power == "log":
        return "log"
    return {0.5: "sqrt", -0.5: "inv_sqrt"}.get(float(power), "power")


@checked
def covariance_pooling(
    X: Tensor,
    *,
    power: float | Literal["log"] = 0.5,
    center: bool = True,
    eps: float = 0.0,
    normalize: bool = False,
    head: Head = "plain",
    output: Literal["triangle", "full"] = "triangle",
    side: Side = "auto",
    method: str | Method = "exact",
    watch: Callable[[Tensor], Tensor] | None = None,
    where: str = "covariance_pooling",
) -> Tensor:
    r"""A function of each sample's covariance, :math:`f\bigl(\frac1n\sum_i(x_i-\mu)(x_i-\mu)^\top+\epsilon I\bigr)`.

    Args:
        X: features (N, C, *).
        power: the exponent of f, or ``"log"`` for the matrix logarithm; taken on the range if the covariance is
            singular.
        center: subtract the mean over positions.
        eps: ε.
        normalize: divide the result by its Frobenius norm (TPAMI, Eq. 29, for the power).
        head: what is returned in place of S = f(C): ``"plain"`` for S itself (the power α of C is Pow-EMLR),
            ``"scaled"`` for S/α (ScalePow-EMLR), ``"tangent"`` for (S − I)/α (Pow-TMLR, which tends to log C for
            α → 0), and ``"seb"`` for :math:`(1+\lVert C^{1/2}e^{-C}\rVert_F)\,C^{1/2}`, the scaling eigen branch.
            The gradient of the norm is exact with every method, because it depends on eigenvalues only.
        output: ``"triangle"`` for the entries on and above the diagonal, row by row, or ``"full"`` for the matrix.
        side: decompose the C×C matrix (``"channels"``) or the n×n matrix (``"positions"``); ``"auto"`` chooses the
            smaller one if the method is exact and ε = 0, otherwise C×C.
        method: method for the gradient.
        watch: if given, called with the matrices to decompose; its result is decomposed instead. With the exact method
            and features beyond 2^±21 in float32 (2^±170 in float64), they belong to features divided by a power of
            two.
        where: name used in error messages.

    Returns:
        (N, C(C+1)/2) for ``output="triangle"``, (N, C, C) for ``"full"``, with the dtype of ``X``.

    Raises:
        ShapeError: ``X`` is not a dense real tensor (N, C, *) with at least one position.
        ArgumentError: ``output``, ``side`` or ``head`` is unknown, ``side="positions"`` with ε > 0 or a method other
            than ``"exact"``, or a ``head`` other than ``"plain"`` with ``normalize=True``, the logarithm, or for
            ``"seb"`` a power other than 1/2.
        MethodError: the method is unknown or does not support the function.
        NonFiniteError: ``X`` contains NaN or infinity.

    Example:
        >>> X = torch.randn(2, 3, 4, 4)
        >>> S = covariance_pooling(X, output="full")
        >>> C = torch.stack([torch.cov(x.flatten(1), correction=0) for x in X])
        >>> torch.allclose(S @ S, C, atol=1e-6)
        True
        >>> covariance_pooling(X).shape
        torch.Size([2, 6])

    Reference: Li et al., MPN-COV, ICCV 2017; Wang et al., TPAMI 2021, Algorithm 3; Song et al., ICCV 2021, Eq. 1. For
    the heads, which follow the released code: Chen et al., Understanding matrix function normalizations in covariance
    pooling through the lens of Riemannian geometry (RiemGCP), ICLR 2025; Song, Sebe and Wang, On the eigenvalues of
    global covariance pooling for fine-grained visual recognition (SEB), TPAMI 2022.
    """
    check_range(eps, "eps", where, 0)
    if power != "log":
        check_range(power, "power", where)
    check_head(head, power, normalize, where)
    rule = resolve(method, operation_of(power))
    check_features(X, where)
    if X.dim() < 3:
        raise ShapeError(f"{where}: expected floating-point features (N, C, *), got {X.dtype} {tuple(X.shape)}")
    with full_precision(X):
        S = _pooled(_positions(X, where), power, head, center, eps, side, rule, watch, where)
        if normalize:
            S = S / _norm(S)
        return (S if output == "full" else upper_triangle(S)).to(X.dtype)


@checked
def upper_triangle(S: Tensor) -> Tensor:
    """The entries on and above the diagonal, row by row.

    Args:
        S: matrices (*, d, d).

    Returns:
        (*, d(d+1)/2), with the dtype of ``S``.

    Example:
        >>> upper_triangle(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
        tensor([1., 2., 3.])
    """
    check_square(S, "upper_triangle")
    d = S.shape[-1]
    rows, columns = torch.triu_indices(d, d, device=S.device)
    return S.flatten(-2).index_select(-1, rows * d + columns)


def _positions(X: Tensor, where: str) -> Tensor:
    """(N, C, *) → (N, C, n)."""
    if X.flatten(2).shape[-1] == 0:
        raise ShapeError(f"{where}: expected at least one position, got shape {tuple(X.shape)}")
    return X.flatten(2)


def _pooled(
    X: Tensor,
    power: float | str,
    head: Head,
    center: bool,
    eps: float,
    side: Side,
    rule: Method,
    watch: Callable[[Tensor], Tensor] | None,
    where: str,
) -> Tensor:
    d, n = X.shape[-2:]
    possible = rule.exact and eps == 0
    if side == "positions" and not possible:
        raise ArgumentError(
            f"{where}: side='positions' requires method='exact' and eps=0, got method={rule.name!r} and eps={eps}; "
            "use side='auto'"
        )
    channels = side == "channels" or (side == "auto" and not (possible and n < d))
    shift: float | Tensor = eps
    size: float | Tensor = 1.0
    if rule.exact:
        X, q, size = scaled(X, center, 0, eps, channels)
        shift = q.square() if eps else eps
    else:  # some methods have absolute thresholds, so the covariance must not be rescaled
        X = scaled_features(X, center)
    C = X @ X.mT if channels else X.mT @ X
    M = shifted(C, shift) if channels else C
    M = M if watch is None else watch(M)
    with raised_by(where):
        return in_head(_function(X, C, M, shift, size, power, center, channels, rule), M, size, power, head)


def _function(
    X: Tensor,
    C: Tensor,
    M: Tensor,
    shift: float | Tensor,
    size: float | Tensor,
    power: float | str,
    center: bool,
    channels: bool,
    rule: Method,
) -> Tensor:
    """f(σ²M) by the method, where M is ``C`` + ``shift`` I, and ``C`` is XXᵀ (``channels``) or XᵀX."""
    if not isinstance(size, Tensor):
        return matrix_log(M, method=rule) if power == "log" else matrix_power(M, float(power), method=rule)
    if channels and isinstance(shift, Tensor):
        return _of_shifted(M, C, shift, power, size)
    if channels:
        return _of_channels(M, power, size)
    # Centring gives XᵀX the null vector of ones. X maps it to zero, so its eigenvalue can be moved away from zero.
    return _of_positions(X, covariance_root.lifted(M) if center else M, power, size)


def _of_channels(M: Tensor, power: float | str, size: Tensor) -> Tensor:
    """The power or logarithm of σ²M for σ = ``size``."""
    if power != "log":
        return matrix_power(M, float(power)) * size ** (2 * float(power))
    f = scalar_functions.logarithm(2 * size[..., 0, 0].log2())
    return Exact().function(M, f, Domain("matrix_log"))


def _of_shifted(M: Tensor, C: Tensor, shift: Tensor, power: float | str, size: Tensor) -> Tensor:
    """The power or logarithm of σ²M for M = C + εI, without losing ε to rounding where C is much larger."""
    if power == "log":
        return of_shifted(M, C, shift, scalar_functions.logarithm(2 * size[..., 0, 0].log2()), Domain("matrix_log"))
    exponent = M.new_full((), float(power))
    return of_shifted(M, C, shift, scalar_functions.real_power(exponent), Domain("matrix_power")) * size ** (
        2 * float(power)
    )


def _of_positions(X: Tensor, products: Tensor, power: float | str, size: Tensor) -> Tensor:
    """The power or logarithm of σ²XXᵀ on its range, from ``products`` XᵀX."""
    if power != "log":
        return X @ (matrix_power(products, float(power) - 1) * size ** (2 * float(power))) @ X.mT
    f = scalar_functions.log_over(2 * size[..., 0, 0].log())
    tolerance = rank_tolerance(products.shape[-1], products.dtype)
    return X @ Exact().function(products, f, Domain("matrix_log", positive=False, rtol=tolerance)) @ X.mT


def _norm(S: Tensor) -> Tensor:
    """The Frobenius norm (*, 1, 1), with 1 in place of 0; scaled so that the squares neither overflow nor underflow."""
    size = S.detach().abs().amax((-2, -1), keepdim=True)
    size = torch.where(size > 0, size, 1)
    zero = (S.detach() == 0).all(-1).all(-1)[..., None, None]
    squared = (S / size).square().sum((-2, -1), keepdim=True)
    return size * torch.where(zero, 1, squared).sqrt()
