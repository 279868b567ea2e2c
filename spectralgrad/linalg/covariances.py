r"""Covariance matrices of features and their square roots, computed from the smaller of two matrices.

The covariance of d channels over N positions has rank at most min(d, N − 1). With centred features X and
:math:`g(\mu)=1/(\sqrt{\mu+\epsilon}+\sqrt\epsilon)`,

.. math:: (XX^H+\epsilon I)^{1/2}=\sqrt\epsilon\,I+X\,g(X^HX)\,X^H ,

so for N < d it is enough to decompose an N×N matrix. The root is homogeneous of degree one in X and √ε. If the features
are so large or small that their products would overflow or underflow, they are first divided by a power of two and the
root is multiplied by it.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from .. import solvers
from ..autograd.functions import covariance_root, scalar_functions
from ..autograd.functions.divided_differences import Differences
from ..autograd.functions.domain import Domain, Spectrum
from ..autograd.functions.rescaling import homogeneous
from ..autograd.pairwise import norm, resolution
from ..dispatch import function
from ..dispatch.arguments import check_range, check_tolerance
from ..dispatch.overrides import overridable
from ..errors import ArgumentError, ShapeError, check_matrix
from ..precision import full_precision, mean, rank_tolerance, real_dtype, widen, working_dtype
from ..rules import Exact, Method, resolve

__all__ = ["covariance", "covariance_sqrt"]


@overridable
def covariance(X: Tensor, *, center: bool = True, correction: int = 0, eps: float = 0.0) -> Tensor:
    r"""Compute the covariance matrix of features.

    .. math:: \frac1{N-c}\sum_n(x_n-\mu)(x_n-\mu)^H+\epsilon I

    Args:
        X: features (*, d, N): d channels, N positions or samples. Half types are accumulated in float32 and
            the result stays in float32.
        center: subtract the mean over positions.
        correction: c; 0 divides by N as in the papers, 1 divides by N − 1.
        eps: added to the diagonal.

    Returns:
        the covariance (*, d, d), Hermitian. Its entries are products of features, so they are ±inf for features above
        about 1e19 in float32; :func:`covariance_sqrt` does not overflow.

    Raises:
        ShapeError: there are not more than ``correction`` positions.
        ArgumentError: ``eps`` is negative or not finite.

    Example:
        >>> covariance(torch.tensor([[1.0, -1.0], [2.0, -2.0]]))
        tensor([[1.0000, 2.0000],
                [2.0000, 4.0000]])

    Reference: ICCV 2021, Eq. 1.
    """
    check_matrix(X, "covariance")
    with full_precision(X):
        return _covariance(X, center, correction, eps)


def _covariance(X: Tensor, center: bool, correction: int, eps: float) -> Tensor:
    _check_shift(eps)

    def products(X: Tensor) -> Tensor:
        features = scaled_features(X, center, correction)
        return features @ features.mH

    C = products(X)
    if function.eager(C) and not abs(C.detach().sum().item()) < math.inf:  # NaN where entries of both signs overflow
        C = homogeneous(products, (widen(X),), ((1,), (2,)))
    return shifted(C, eps)


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
    r"""Compute the square root of the covariance of features by decomposing the smaller of the d×d and N×N matrices.

    .. math:: (XX^H)^{1/2}=X\,(X^HX)^{-1/2}\,X^H

    The exact method works for features of any scale, and its gradient does not depend on the scale. With
    ``side="positions"`` and ``eps=0`` in eager mode this holds over the whole range of the dtype. With
    ``side="channels"``, a positive ``eps`` or under transforms it holds for features between 1e-36 and 1e36 in float32,
    because gradients are multiplied by the scale there. Other methods decompose the result of :func:`covariance`.

    Args:
        X: features (*, d, N).
        center: as in :func:`covariance`.
        correction: as in :func:`covariance`.
        eps: as in :func:`covariance`.
        method: ``"exact"``, or any name from ``methods("sqrt")``; methods other than ``"exact"`` decompose the d×d
            matrix, as in the papers.
        side: which matrix to decompose: ``"channels"`` (d×d), ``"positions"`` (N×N) or ``"auto"`` (the smaller one).
        rtol: relative rank tolerance, as in :func:`matrix_sqrt`.

    Returns:
        the root (*, d, d) in the dtype of X, Hermitian positive semi-definite.

    Raises:
        ArgumentError: ``side="positions"`` with a method other than ``"exact"``, or an invalid ``eps``.
        ShapeError: there are not more than ``correction`` positions.

    Example:
        >>> X = torch.randn(64, 5, dtype=torch.float64)
        >>> S = covariance_sqrt(X)                       # decomposes a 5×5 matrix
        >>> torch.allclose(S @ S, covariance(X))
        True

    Reference: the identity is derived at the top of this module.
    """
    check_matrix(X, "covariance_sqrt")
    check_tolerance(rtol, "covariance_sqrt")
    rule, domain = resolve(method, "sqrt"), Domain("covariance_sqrt", rtol=rtol)
    d, n = X.shape[-2:]
    if side == "auto":
        side = "positions" if n < d and rule.exact else "channels"
    if side == "positions" and not rule.exact:
        raise ArgumentError(f"covariance_sqrt: side='positions' requires method='exact', got method {rule.name!r}")
    with full_precision(X):
        if not rule.exact:  # some methods have absolute thresholds, so the covariance must not be rescaled
            return rule.root(_covariance(X, center, correction, eps), False, domain).to(X.dtype)
        if side == "positions" and eps == 0 and function.reverse_only(X):
            return covariance_root.root_from_positions(widen(X), center, count_of(X, correction), domain).to(X.dtype)
        from_side = _from_channels if side == "channels" else _from_positions
        prepared = scaled(X, center, correction, eps, side == "channels")
        return from_side(*prepared, center, eps, domain).to(X.dtype)


def _from_channels(X: Tensor, q: Tensor, size: Tensor, center: bool, eps: float, domain: Domain) -> Tensor:
    C, shift = X @ X.mH, q.square()
    if eps == 0:
        return Exact().root(C, False, domain) * size
    return of_shifted(shifted(C, shift), C, shift, scalar_functions.SQRT, domain) * size


def of_shifted(M: Tensor, C: Tensor, shift: Tensor, f: scalar_functions.Function, domain: Domain) -> Tensor:
    """Compute f(M) for M = C + εI with the exact derivative in ``M``, for arbitrarily small ε.

    The rank tolerance applies to C. Where ε is below the tolerance, pairs of null vectors are left out of the
    derivative: in exact arithmetic the features have no part in the null space, and the rounding error they have there
    would be multiplied by 1/√ε.

    Args:
        M: the shifted matrices (*, d, d).
        C: the matrices without ε.
        shift: ε (*, 1, 1).
        f: the function.
        domain: of C: name used in error messages, and relative rank tolerance.
    """
    w, V, support = domain.spectrum(C)
    offset, kept = shift[..., 0], torch.where(support, w, 0)

    def differences(w: Tensor) -> Differences:
        tolerance = rank_tolerance(w.shape[-1], w.dtype) if domain.rtol is None else domain.rtol
        vague = ~support & (offset <= tolerance * norm(kept).unsqueeze(-1))
        values, gamma, curvature = f.differences(w)
        return values, torch.where(vague.unsqueeze(-1) & vague.unsqueeze(-2), 0, gamma), curvature

    everything = Spectrum(kept + offset, V, torch.ones_like(support))
    return Exact().compose(M, scalar_functions.Function(f.value, f.slope, differences), everything)


def _from_positions(X: Tensor, q: Tensor, size: Tensor, center: bool, eps: float, domain: Domain) -> Tensor:
    A = covariance_root.products(X, center)
    if eps == 0:
        return X @ (Exact().root(A, True, domain) * size) @ X.mH
    w, V = solvers.eigh(A.detach(), domain.operation)
    largest = norm(w).unsqueeze(-1)
    # The derivative of g is about q⁻³: a small √ε would amplify the rounding error of X on the null space of XᴴX.
    resolved = q[..., 0] > (resolution(w.dtype) * largest).sqrt()
    support = resolved | (w > rank_tolerance(w.shape[-1], w.dtype) * largest)
    # Beyond the number of channels, and the eigenvalue that was raised, all are zero. There g is 1/(2q), which would
    # multiply the rounding error of its product with X.
    n = w.shape[-1]
    support = support & (torch.arange(n, device=w.device) >= n - X.shape[-2] - center)
    g = Exact().compose(A, scalar_functions.inverse_of_sum(q[..., 0, 0]), Spectrum(w, V, support))
    return shifted(X @ (g * size) @ X.mH, eps**0.5)


def scaled(X: Tensor, center: bool, correction: int, eps: float, channels: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the centred features over √(N − c) and √ε, both divided by a power of two, and that power (*, 1, 1).

    The power is 1 for features of ordinary size. ``channels`` is True if XXᴴ is decomposed rather than XᴴX; the slope
    of the root is large there, so the features are scaled no more than necessary.
    """
    _check_shift(eps)
    least = 2.0 ** min(0, math.ceil(math.log2(eps) / 2)) if eps else 0.0
    X, size = covariance_root.features(widen(X), center, 1 / root_of_count(X, correction), least, steep=channels)
    return X, eps**0.5 / size, size


def _check_shift(eps: float) -> None:
    check_range(eps, "eps", "covariance", 0)


def scaled_features(X: Tensor, center: bool, correction: int = 0) -> Tensor:
    """Return centred features divided by √(N − c), in working precision."""
    root = root_of_count(X, correction)
    X = widen(X)
    if center:
        X = X - mean(X)
    return X / root


def root_of_count(X: Tensor, correction: int = 0) -> float | Tensor:
    """Return √(N − c). Under torch.jit.trace sizes are tensors, whose root would be taken in single precision."""
    count = count_of(X, correction)
    return count.to(real_dtype(working_dtype(X.dtype))).sqrt() if isinstance(count, Tensor) else count**0.5


def count_of(X: Tensor, correction: int) -> int:
    """Return N − c, the divisor of the sum over positions."""
    count = X.shape[-1] - correction
    if count <= 0:
        raise ShapeError(
            f"covariance: expected more than {correction} positions (correction={correction}), "
            f"got features of shape {tuple(X.shape)}"
        )
    return count


def shifted(C: Tensor, eps: float | Tensor) -> Tensor:
    """Return C + εI."""
    if isinstance(eps, (float, int)) and eps == 0:
        return C
    return C + eps * torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)
