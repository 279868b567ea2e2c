"""The equations of the self-test for products behind a decomposition, and for passes over points and features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .calls import UNCHECKED, Scalar, Singular, Symmetric
from .derivative_calls import Derivatives, SingularDerivatives, SingularScalar

if TYPE_CHECKING:
    from .functions import Kernel

Equation = tuple[str, np.ndarray, np.ndarray]  # what is tested, left-hand side, right-hand side


def wide(x: Tensor) -> np.ndarray:
    """Return a tensor in double precision."""
    return x.numpy().astype(np.complex128 if x.is_complex() else np.float64)


def scalar(native: Kernel, A: Tensor, G: Tensor, kind: str, p: float, lanes: bool) -> tuple[Tensor, Tensor]:
    """A scalar function of matrices and its derivative in the direction G; NaN if the kernel doubts a matrix."""
    f, limits = Scalar(kind, p, 1e6), (-1.0, 1.0, UNCHECKED)
    (S, w, V), doubtful = Symmetric.of(native, A.shape, A.dtype, lanes).function(A, f, True, limits)
    return S / (doubtful == 0), Derivatives.of(native, A.shape, A.dtype).scalar(V, w, G, f)


def of_polar(native: Kernel, M: Tensor, lanes: bool) -> Iterator[Equation]:
    """Polar factors, rotations, and their derivative: QᵀX H + H QᵀX = QᵀG − GᵀQ, and X H = G outside the range of Q."""
    M = M * torch.arange(1, M.shape[-1] + 1, dtype=M.dtype)  # not symmetric
    plan, identity = Singular.of(native, M.shape, M.dtype, lanes), np.eye(M.shape[-1])
    derivatives = SingularDerivatives.of(native, M.shape, torch.Size((*M.shape[:-2], *identity.shape)), M.dtype)
    G = M.sin()
    for special in (False, True) if M.shape[-2] == M.shape[-1] else (False,):
        (Q, h, Vh), failed = plan.polar(M, special, 0.0)
        q, values, vh, g = wide(Q), wide(h)[:, :, None], wide(Vh), wide(G)
        adjoint, root = q.swapaxes(1, 2), vh.swapaxes(1, 2) @ (values * vh)
        yield "polar factor", adjoint @ q, identity + failed
        yield "polar factor", q @ root, wide(M)
        if special:
            yield "rotation", np.linalg.det(q), np.ones(len(q))
        x = wide(derivatives.polar(G, Q, h, Vh)) @ root  # X H
        inner = adjoint @ x
        found = inner - inner.swapaxes(1, 2), x - q @ inner
        expected = adjoint @ g - g.swapaxes(1, 2) @ q, g - q @ (adjoint @ g)
        yield "derivative of a polar factor", np.concatenate(found, 1), np.concatenate(expected, 1)


def of_known_functions(plan: SingularDerivatives, G: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> Iterator[Equation]:
    """Functions of singular values by name, and derivatives, from values and divided differences computed here."""
    s, level, factor = wide(S), float(S.mean()), S[:, 0].contiguous()
    largest, above = s == s[:, :1], s > level
    for name, parameter, values, kept in (
        ("leading", 1.0, np.where(largest, s, 0), largest),
        ("threshold", level, np.maximum(s - level, 0), above),
    ):
        f, alike = SingularScalar(name, parameter, 0.0), kept[:, :, None] == kept[:, None]
        gap = np.where(alike, 1, s[:, :, None] - s[:, None])
        joint = np.where(alike, kept[:, :, None] & kept[:, None], (values[:, :, None] - values[:, None]) / gap)
        known, pairs, ratios = (torch.from_numpy(x).to(S.dtype).contiguous() for x in (values, joint, values / s))
        yield name, wide(plan.function(f, U, S, Vh)), wide(plan.composed(U, known, Vh))
        found, expected = plan.function_derivative(f, G, U, S, Vh), plan.derivative(G, U, S, Vh, pairs, ratios)
        yield f"derivative of {name}", wide(found), wide(expected)
    for name, share in ("support", np.ones_like(s)), ("largest", largest):
        weighed = torch.from_numpy(wide(factor)[:, None] * share).to(S.dtype)
        found = plan.function(SingularScalar(name, 0.0, 0.0), U, S, Vh, factor)
        yield name, wide(found), wide(plan.composed(U, weighed, Vh))


def of_projector(native: Kernel, A: Tensor, G: Tensor, lanes: bool) -> Iterator[Equation]:
    """The projector P onto two leading eigenvectors: PA is A's part, and X with AX − XA = PG − GP the derivative."""
    P, X = map(wide, scalar(native, A, G, "leading", 2.0, lanes))
    a, g = wide(A), wide(G)
    yield "projector", P @ P, P
    yield "projector", P @ a, a @ P
    yield "projector", np.trace(P @ a, axis1=1, axis2=2), np.linalg.eigvalsh(a)[:, -2:].sum(-1)
    yield "derivative of the projector", a @ X - X @ a, P @ g - g @ P


def of_points(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """An alignment with weights and a scale, one without either, and the gradient of points."""
    w = 1 + A[..., 0].square()
    for lanes in (True, False):
        plan, C = Singular.of(native, A.shape, A.dtype, lanes), torch.empty_like(A)
        for weights, scale in ((w, True), (None, False)):
            fit, failed = plan.align(C, A, G, weights, scale, scale, True, 0.0)
            yield from _of_fit(A, G, weights, C, fit, failed)
    gX, gY, gw = torch.empty_like(A), torch.empty_like(A), torch.empty_like(w)
    x, y, pulls = A.mean(-2), G.mean(-2), (A[:, 0].contiguous(), G[:, 0].contiguous())
    native.pull_points(A, G, w, x, y, A, *pulls, gX, gY, gw)
    each = wide(w)[..., None]
    near, far, total = wide(A) - wide(x)[:, None], wide(G) - wide(y)[:, None], each.sum(1, keepdims=True)
    pulled, pushed = (wide(g)[:, None] / total for g in pulls)
    turned = near @ wide(A).swapaxes(1, 2)
    yield "gradient of points", wide(gX), each * (far @ wide(A) + pulled)
    yield "gradient of points", wide(gY), each * (turned + pushed)
    yield "gradient of weights", wide(gw), (far * (turned + pushed) + near * pulled).sum(-1)


def _of_fit(
    A: Tensor, G: Tensor, w: Tensor | None, C: Tensor, found: tuple[Tensor, ...], failed: int
) -> Iterator[Equation]:
    R, t, s, e, margin, x, y, h, Vh, spread = map(wide, found)
    weights = np.ones((*A.shape[:-1], 1)) if w is None else wide(w)[..., None]
    near, far = wide(A) - x[:, None], wide(G) - y[:, None]
    centers = [(weights * wide(P)).sum(1) / weights.sum(1) * (w is not None) for P in (A, G)]
    misses = s[:, None, None] * near @ R.swapaxes(1, 2) - far
    yield "means", np.concatenate([x, y]), np.concatenate(centers)
    yield "cross-covariance", wide(C), (weights * far).swapaxes(1, 2) @ near
    yield "alignment", R @ (Vh.swapaxes(1, 2) @ (h[..., None] * Vh)), wide(C) + failed
    yield "translation", t + (s[:, None, None] * R @ x[..., None])[..., 0], y
    size = (weights * far**2).sum((1, 2))  # a fit of two points is exact
    yield "distance of a fit", e + size, (weights * misses**2).sum((1, 2)) + size
    yield "margin", margin * h[:, 0], h[:, -2:].sum(-1)
    if w is not None:
        yield "scale", s * spread, h.sum(-1)
        yield "scale", spread, (weights * near**2).sum((1, 2))


def of_features(native: Kernel, A: Tensor, G: Tensor) -> Iterator[Equation]:
    """The passes over features of seventeen samples with 2 groups of d/2 channels and d positions."""
    samples, d = A.shape[:2]
    shape = (samples, 2, d // 2, d)
    x0, y0, B = A[0, 0].view(2, -1), G[0, 0].view(2, -1), A[1].view(2, d // 2, d)[..., : d // 2]
    C, sums, out = B.new_empty(B.shape), torch.empty_like(x0), torch.empty_like(A)
    x, y, b = wide(A).reshape(shape) - wide(x0)[..., None], wide(G).reshape(shape), wide(B)
    native.features("moments", shape, A, x0, None, C, sums)
    yield "moments of features", wide(C), (x @ x.swapaxes(2, 3)).sum(0)
    native.features("moments", shape, A, x0, G, C, sums)
    yield "moments of features", wide(C), (y @ x.swapaxes(2, 3)).sum(0)
    yield "sums of features", wide(sums), y.sum((0, 3))
    native.features("map", shape, G, y0, B, A, x0, B, x0, out)
    right = b @ (y - wide(y0)[..., None]) + b @ x + wide(x0)[..., None]
    yield "affine map of features", wide(out).reshape(shape), right
