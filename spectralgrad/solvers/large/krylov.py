"""A few eigenpairs of a Hermitian operator from its products, by ARPACK through scipy, or by torch.lobpcg."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import ArgumentError, ConvergenceError, NonFiniteError
from ...precision import magnitude
from ..decompose.fallbacks import EIGH
from ..symmetry import hermitian

Product = Callable[[Tensor], Tensor]

_DENSE = 64  # size up to which the matrix is formed: Krylov methods need room between k and n


def probes(n: int, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return two fixed random vectors (n, 2), by numpy because vmap refuses torch's random numbers."""
    parts = np.random.default_rng(0).standard_normal((2, n, 2))
    return torch.from_numpy(parts[0] + 1j * parts[1] if dtype.is_complex else parts[0]).to(device, dtype)


@torch.no_grad()
def eigsh(
    product: Product, probes: Tensor, k: int, largest: bool, tol: float, matrix: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return k eigenvalues, ascending, and eigenvectors (n, k).

    Args:
        product: maps (n, m) to (n, m).
        probes: two random vectors (n, 2) of the dtype and device of the result. The operator is checked with both, and
            the iteration starts from the first.
        k: how many, at least 1.
        largest: at the upper end of the spectrum, otherwise at the lower end.
        tol: relative accuracy of the eigenvalues; 0 for machine precision.
        matrix: the operator as a tensor, if it is one.
    """
    _check_operator(product, probes)
    n, like = len(probes), probes[:, :1]
    if n <= _DENSE or k > n // 3:
        A = product(torch.eye(n, dtype=like.dtype, device=like.device))
        w, V = EIGH.solve(hermitian(A), "eigsh")
        kept = slice(n - k, n) if largest else slice(0, k)
        return w[kept].clone(), V[:, kept].contiguous()
    size = power_of_two(product(like))
    if size == 0:  # a random vector is in the null space of the zero operator only
        return like.real.new_zeros(k), torch.eye(n, k, dtype=like.dtype, device=like.device)

    def scaled(X: Tensor) -> Tensor:  # the solvers' criteria are not relative for operators much smaller than 1
        return product(X) / size

    try:
        from scipy.sparse import linalg  # type: ignore[import-untyped]
    except ImportError:
        w, V = _by_lobpcg(None if matrix is None else matrix.detach() / size, k, largest, tol)
        reached = max(tol, torch.finfo(w.dtype).eps ** 0.5)  # the default of torch.lobpcg
    else:
        reached = max(tol, torch.finfo(like.dtype).eps)
        found = _converged(linalg, scaled, like, k, largest, tol, reached)
        w, V = _complete(linalg, scaled, like, *found, largest, tol)
    residual = _residual(scaled, like, w, V)
    if not residual <= _allowed(like, reached):
        raise ConvergenceError(
            f"eigsh: the residual of an eigenpair is {residual:.1g} of the operator's norm. "
            "Ask for more eigenpairs, or pass a larger tol."
        )
    return w * size, V.contiguous()  # forward mode needs results in row-major order that are not views


def following(product: Product, w: Tensor, V: Tensor, largest: bool, tol: float) -> tuple[Tensor, Tensor] | None:
    """Return the next eigenpair (1,) and (n, 1) after those given at one end of the spectrum; None if all are given.

    The known eigenvalues are moved beyond the other end, where they do not hide one that is equal to them.
    """
    n, k = V.shape
    if n == k:
        return None
    start = probes(n, V.dtype, V.device)
    reach = 2 * torch.linalg.vector_norm(product(start)) + w.abs().max()
    moved = _moved(product, V, (-reach if largest else reach) - w)
    return eigsh(moved, start, 1, largest, tol, None)


def _check_operator(product: Product, probes: Tensor) -> None:
    """Raise an error if products are not finite, or contradict that the operator is Hermitian."""
    Y = product(probes)
    if not isinstance(Y, Tensor) or Y.shape != probes.shape:
        got = f"shape {tuple(Y.shape)}" if isinstance(Y, Tensor) else type(Y).__name__
        raise ArgumentError(f"eigsh: expected an operator that maps {tuple(probes.shape)} to the same shape, got {got}")
    if not bool(torch.isfinite(Y).all()):
        raise NonFiniteError([], (), "eigsh")
    Y = Y / magnitude(Y)
    gram = probes.mH @ Y
    allowed = torch.finfo(Y.dtype).eps ** 0.5 * torch.linalg.vector_norm(Y) * torch.linalg.vector_norm(probes)
    if bool((gram - gram.mH).abs().max() > allowed):
        raise ArgumentError("eigsh: expected a Hermitian operator, got one with ⟨x, Ay⟩ ≠ ⟨Ax, y⟩")


def power_of_two(Y: Tensor) -> float:
    """Return the largest modulus rounded down to a power of two whose reciprocal is representable, or 0."""
    largest = float(Y.abs().max())
    least = 4 * torch.finfo(Y.dtype).tiny
    return 2.0 ** (math.frexp(max(largest, least))[1] - 1) if largest else 0.0


def _residual(product: Product, like: Tensor, w: Tensor, V: Tensor) -> float:
    """Return the largest residual ‖Av − λv‖, relative to the operator's norm."""
    norm = torch.linalg.vector_norm
    size = max(float(w.abs().max()), float(norm(product(like)) / norm(like)))
    return float(norm(product(V) - V * w, dim=0).max()) / size


def _allowed(like: Tensor, tol: float) -> float:
    # The norm of a random vector's image may be √n times smaller than the operator's.
    return 30 * float(len(like) ** 0.5) * tol


def _converged(
    linalg: Any, product: Product, like: Tensor, k: int, largest: bool, tol: float, reached: float
) -> tuple[Tensor, Tensor]:
    """Return the k outermost eigenpairs that ARPACK finds.

    Near a repeated eigenvalue, rounding errors bring further copies of it into the Krylov space. ARPACK may then stop
    at a copy that has not converged, or not stop at all. If it looks for more eigenpairs, the outer ones converge.
    """
    for more in (0, 2, 4):
        try:
            w, V = _by_arpack(linalg, product, like, k + more, largest, tol)
        except ConvergenceError:
            if more == 4:
                raise
            continue
        w, V = (w[more:], V[:, more:]) if largest else (w[:k], V[:, :k])
        if _residual(product, like, w, V) <= _allowed(like, reached):
            break
    return w, V


def _complete(
    linalg: Any, product: Product, like: Tensor, w: Tensor, V: Tensor, largest: bool, tol: float
) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs with copies of repeated eigenvalues that the Krylov method missed.

    The known ones are moved to the edge of the kept part, where they are no longer extreme. If the extreme eigenvalue
    of the result is beyond that edge, it was missed. Rayleigh–Ritz on all of them then drops the innermost.
    """
    for turn in range(1, len(w) + 1):
        edge = w[0] if largest else w[-1]
        start = like.roll(turn, 0)  # the starts before have no share in what was missed
        moved = _moved(product, V, edge - w)
        if not bool(moved(start).any()):  # zero, and so is the edge: ARPACK would refuse it
            break
        try:
            t, x = _by_arpack(linalg, moved, start, 1, largest, tol)
        except (
            ConvergenceError
        ):  # what is at the edge differs by rounding errors, which full accuracy has to tell apart
            t, x = _by_arpack(linalg, moved, start, 1, largest, max(tol, 100 * torch.finfo(w.dtype).eps))
        beyond = float(t[0] - edge) * (1 if largest else -1)
        if beyond <= max(10 * tol, 1e3 * torch.finfo(w.dtype).eps) * float(w.abs().max()):
            break
        w, V = _ritz_pairs(product, torch.cat([V, x], 1))
        kept = slice(1, None) if largest else slice(0, -1)
        w, V = w[kept], V[:, kept]
    return w, V


def _ritz_pairs(product: Product, V: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenpairs of the operator restricted to the span of V, with orthonormal vectors."""
    basis = torch.linalg.qr(V).Q
    w, Y = EIGH.solve(hermitian(basis.mH @ product(basis)), "eigsh")
    return w, basis @ Y


def _moved(product: Product, V: Tensor, by: Tensor) -> Product:
    return lambda X: product(X) + V @ (by.unsqueeze(-1) * (V.mH @ X))


def _by_arpack(linalg: Any, product: Product, like: Tensor, k: int, largest: bool, tol: float) -> tuple[Tensor, Tensor]:
    def matvec(x: np.ndarray) -> np.ndarray:
        column = torch.from_numpy(np.ascontiguousarray(x.reshape(-1, 1))).to(like.device)
        return product(column).cpu().numpy()

    start = like.cpu().numpy()[:, 0]
    operator = linalg.LinearOperator((len(like), len(like)), matvec=matvec, dtype=start.dtype)
    try:
        w, V = linalg.eigsh(operator, k, which="LA" if largest else "SA", v0=start, tol=tol)
    except linalg.ArpackError as problem:
        raise ConvergenceError(f"eigsh: {problem}. Ask for fewer eigenpairs, or pass a larger tol.") from None
    order = np.argsort(w.real)
    w, V = (torch.from_numpy(np.ascontiguousarray(x)).to(like.device) for x in (w[order], V[:, order]))
    # For complex matrices scipy runs the general ARPACK, whose vectors are not orthogonal at ties.
    return _ritz_pairs(product, V) if V.is_complex() else (w, V)


def _by_lobpcg(matrix: Tensor | None, k: int, largest: bool, tol: float) -> tuple[Tensor, Tensor]:
    if matrix is None or matrix.dtype.is_complex:
        raise ImportError(
            "eigsh needs scipy for callables and complex matrices; run `pip install -e '.[large]'` in the clone"
        )
    w, V = torch.lobpcg(matrix, k=k, largest=largest, tol=tol or None, niter=-1)
    w, order = w.sort()
    return w, V[:, order]
