r"""Covariances of features, and their roots from the smaller side.

The covariance of d channels over N positions has rank at most min(d, N − 1). With centred features X and
:math:`g(\mu)=1/(\sqrt{\mu+\epsilon}+\sqrt\epsilon)`,

.. math:: (XX^H+\epsilon I)^{1/2}=\sqrt\epsilon\,I+X\,g(X^HX)\,X^H ,

so for N < d an N×N decomposition does what a d×d one would. The root is homogeneous in X and √ε: features so large or
small that their products would leave the type are divided by a power of two first, and the root multiplied by it.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from .. import solvers
from ..autograd import covariance_root, scalar_functions
from ..autograd.divided_differences import Differences
from ..autograd.pairwise import norm, resolution
from ..autograd.spectra import Domain, Spectrum
from ..dispatch import function
from ..dispatch.overrides import overridable
from ..errors import ArgumentError, ShapeError, check_choice, check_matrix, check_tolerance
from ..precision import full_precision, rank_tolerance, real_dtype, widen, working_dtype
from ..rules import Exact, Method, resolve


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
        (*, d, d), Hermitian. Its entries are squares: beyond the square root of the type's range (features of 1e19 in
        float32) it overflows, and :func:`covariance_sqrt` does not.

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
    features = scaled_features(X, center, correction)
    return shifted(features @ features.mH, eps)


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

    The exact method works at every scale of the features, with a gradient that does not depend on it: from positions
    for all numbers of the type, from channels, with ε or under transforms for 1e±36 in float32 (cotangents of about
    one are multiplied by the scale there). Other methods decompose :func:`covariance` as it is.

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
    check_choice(side, ("auto", "channels", "positions"), "side", "covariance_sqrt")
    check_tolerance(rtol, "covariance_sqrt")
    rule, domain = resolve(method, "sqrt"), Domain("covariance_sqrt", rtol=rtol)
    d, n = X.shape[-2:]
    if side == "auto":
        side = "positions" if n < d and rule.exact else "channels"
    if side == "positions" and not rule.exact:
        raise ArgumentError(f"covariance_sqrt: side='positions' needs method='exact', got {rule.name!r}")
    with full_precision(X):
        if not rule.exact:  # some methods have absolute thresholds: they get the covariance as it is
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
    """f(M) for M = C + εI, exact, differentiable in ``M``; the rank tolerance is applied to C, and no ε is too small.

    Where ε is below the tolerance, pairs of null vectors have no part in the derivative: it would multiply what
    rounding left of the features there by 1/√ε. Without rounding they leave nothing.

    Args:
        M: the shifted matrices (*, d, d).
        C: the matrices without ε.
        shift: ε (*, 1, 1).
        f: the function.
        domain: of C: the name in errors and the rank tolerance.
    """
    w, V, support = domain.spectrum(C)
    w, offset = torch.where(support, w, 0), shift[..., 0]
    tolerance = rank_tolerance(w.shape[-1], w.dtype) if domain.rtol is None else domain.rtol
    vague = ~support & (offset <= tolerance * norm(w).unsqueeze(-1))

    def differences(w: Tensor) -> Differences:
        values, gamma, curvature = f.differences(w)
        return values, torch.where(vague.unsqueeze(-1) & vague.unsqueeze(-2), 0, gamma), curvature

    everything = Spectrum(w + offset, V, torch.ones_like(support))
    return Exact().compose(M, scalar_functions.Function(f.value, f.slope, differences), everything)


def _from_positions(X: Tensor, q: Tensor, size: Tensor, center: bool, eps: float, domain: Domain) -> Tensor:
    A = covariance_root.products(X, center)
    if eps == 0:
        return X @ (Exact().root(A, True, domain) * size) @ X.mH
    w, V = solvers.eigh(A.detach(), domain.operation)
    largest = norm(w).unsqueeze(-1)
    # The derivative of g is about q⁻³: for small √ε it would magnify what rounding left of X on the null space of XᴴX.
    resolved = q[..., 0] > (resolution(w.dtype) * largest).sqrt()
    support = resolved | (w > rank_tolerance(w.shape[-1], w.dtype) * largest)
    g = Exact().compose(A, scalar_functions.inverse_of_sum(q[..., 0, 0]), Spectrum(w, V, support))
    return shifted(X @ (g * size) @ X.mH, eps**0.5)


def scaled(X: Tensor, center: bool, correction: int, eps: float, channels: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Centred features over √(N − c) and √ε, both divided by the same power of two, and that power (*, 1, 1).

    The power is 1 for features of ordinary size. A function of XXᴴ, the side of the ``channels``, has a steep slope.
    """
    _check_shift(eps)
    least = 2.0 ** min(0, math.ceil(math.log2(eps) / 2)) if eps else 0.0
    X, size = covariance_root.features(widen(X), center, 1 / _root_of_count(X, correction), least, steep=channels)
    return X, eps**0.5 / size, size


def _check_shift(eps: float) -> None:
    if not 0 <= eps < math.inf:
        raise ArgumentError(f"covariance: expected a finite eps ≥ 0, got {eps!r}")


def scaled_features(X: Tensor, center: bool, correction: int = 0) -> Tensor:
    """Centred features divided by √(N − c), in working precision."""
    root = _root_of_count(X, correction)
    X = widen(X)
    if center:
        X = X - X.mean(-1, keepdim=True)
    return X / root


def _root_of_count(X: Tensor, correction: int) -> float | Tensor:
    """√(N − c). Sizes are tensors while torch.jit.trace records, and would have their root in single precision."""
    count = count_of(X, correction)
    return count.to(real_dtype(working_dtype(X.dtype))).sqrt() if isinstance(count, Tensor) else count**0.5


def count_of(X: Tensor, correction: int) -> int:
    """N − c, what the sum over positions is divided by."""
    count = X.shape[-1] - correction
    if count <= 0:
        raise ShapeError(
            f"covariance: expected more than {correction} positions, got features of shape {tuple(X.shape)}"
        )
    return count


def shifted(C: Tensor, eps: float | Tensor) -> Tensor:
    """C + εI."""
    if isinstance(eps, (float, int)) and eps == 0:
        return C
    return C + eps * torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)
