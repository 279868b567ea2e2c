"""The test of the Triton kernels on a device: a few matrices each, judged on the device, and one number read.

What is expected is computed in double precision, because products in single precision may use TF32. Every batch has a
matrix with tied values, a graded one, a singular one, a huge one, an ordinary one and one that is not finite, which
must fail by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...precision import full_precision
from ..acceptance import THRESHOLD, eigh_ratios, orthonormality, svd_ratios
from . import long_svd, point_sets, small_eigh, small_polar, small_roots, small_svd

_BAD = 5  # position of the matrix that is not finite
_SINGLE, _DOUBLE = torch.float32, torch.float64


def failures(device: torch.device) -> list[str]:
    """Return the names of the kernels that fail."""
    with torch.no_grad(), full_precision(torch.empty(0, device=device)):
        checks = [*_decompositions(device), *_functions(device), *_points(device)]
        passed = torch.stack([ok.all() for _, ok in checks])
        code = int((passed.to(torch.int64) << torch.arange(len(checks), device=device)).sum())
    return [name for i, (name, _) in enumerate(checks) if not code >> i & 1]


def _matrices(m: int, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Six matrices with singular values that are tied, graded, mostly zero, huge, ordinary and not finite."""
    k = min(m, n)
    step = torch.arange(k, device=device, dtype=dtype)
    scales = [torch.ones_like(step), 10.0**-step, (step == 0).to(dtype), 1e30 + 1e29 * step, 1 + step, 1 + step]
    left, right = _orthogonal(m, dtype, device)[:, :k], _orthogonal(n, dtype, device)[:k]
    M = (left * torch.stack(scales).unsqueeze(-2)) @ right
    M[_BAD, -1, 0] = torch.nan
    return M


def _orthogonal(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A reflection I − 2vvᵀ, the same on every device."""
    v = torch.arange(1, n + 1, device=device, dtype=dtype)
    return torch.eye(n, dtype=dtype, device=device) - 2 * v.unsqueeze(1) * v / (v * v).sum()


def _symmetric(d: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    M = _matrices(d, d, dtype, device)
    return M.tril() + M.tril(-1).mT


def _judged(ratios: Tensor, failed: Tensor, bar: float = THRESHOLD) -> Tensor:
    """True (*,) where the outcome is as expected: within the bar, or a failure of the matrix that is not finite."""
    bad = torch.arange(len(failed), device=failed.device) == _BAD
    return torch.where(bad, failed, (ratios < bar) & ~failed)


def _decompositions(device: torch.device) -> Iterator[tuple[str, Tensor]]:
    for d, dtype in ((3, _SINGLE), (5, _DOUBLE)):
        A = _symmetric(d, dtype, device)
        w, V, failed = small_eigh.eigh(A)
        yield f"eigh {d}×{d}", _judged(eigh_ratios(A, w, V), failed)
    for m, run in ((3, small_svd.svd), (40, long_svd.tall_svd)):
        M = _matrices(m, 3, _SINGLE, device)
        U, S, Vh, failed = run(M)
        yield f"svd {m}×3", _judged(svd_ratios(M, U, S, Vh), failed)


def _functions(device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Roots and rotations by the equations that define them, and their derivatives by the differentiated equations.

    The derivatives are judged where they are about one: for the first matrix and the ordinary one.
    """
    A, G = _symmetric(3, _SINGLE, device), _orthogonal(3, _SINGLE, device).roll(1, 0).expand(6, 3, 3).contiguous()
    S, s, V, state = small_roots.root(A, False, 1e-6, torch.inf)
    X = small_roots.root_derivative(V, s, G, False)
    wide, given = S.double(), G.double()
    yield "root", _judged(_distance(wide @ wide, A), state > 0)
    residual = _distance(wide @ X.double() + X.double() @ wide, (given + given.mT) / 2)
    yield "derivative of the root", residual[[0, 4]] < THRESHOLD
    M = _matrices(3, 3, _SINGLE, device)
    Q, h, Vh, failed = small_polar.polar(M, True, 1e-6)
    wide, H = Q.double(), (Vh.mT.double() * h.double().unsqueeze(-2)) @ Vh.double()
    yield "rotation", _judged(torch.maximum(_distance(wide @ H, M), orthonormality(Q)), failed)
    turn, skew = wide.mT @ small_polar.polar_derivative(Q, h, Vh, G).double(), wide.mT @ given - given.mT @ wide
    yield "derivative of the rotation", (_distance(H @ turn + turn @ H + given, skew + given) < THRESHOLD)[[0, 4]]


def _distance(X: Tensor, Y: Tensor) -> Tensor:
    """The largest entry (*,) of a difference, relative to the largest of Y and to the unit of single precision.

    Infinite for NaN.
    """
    found = (X.double() - Y.double()).abs().amax((-2, -1)) / Y.double().abs().amax((-2, -1))
    return torch.where(torch.isfinite(found), found, torch.inf) / torch.finfo(_SINGLE).eps


def _points(device: torch.device) -> Iterator[tuple[str, Tensor]]:
    X = _matrices(40, 3, _SINGLE, device)[[0, 1, 4]]
    Y = X.flip(1).contiguous()
    C, x, y = point_sets.cross_covariance(X, Y, None, True)
    near, far = (P.double() - P.double().mean(1, keepdim=True) for P in (X, Y))
    same_means = _distance(x.unsqueeze(1), X.mean(1, keepdim=True)) < THRESHOLD
    yield "cross-covariance", (_distance(C, far.mT @ near) < THRESHOLD) & same_means
    R = _orthogonal(3, _SINGLE, device).expand_as(C).contiguous()
    turned = near @ R.double().mT
    misses = (turned - far).square().sum((1, 2))
    found = point_sets.fit_distance(X, Y, None, x, y, R)
    yield "distance", _distance(found[:, None, None], misses[:, None, None]) < THRESHOLD
    gX, gY, _ = point_sets.point_gradients(X, Y, None, (x, y), R, None)
    expected = torch.cat([far @ R.double(), turned], -1)
    yield "gradients of points", _distance(torch.cat([gX, gY], -1), expected) < THRESHOLD
