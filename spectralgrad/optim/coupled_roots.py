r"""Inverse roots by matrix products alone, as DASH computes them for Shampoo: coupled iterations, without eigenvectors.

Two iterations, both on a matrix whose eigenvalues are first scaled into the region of convergence:

* Coupled Newton for :math:`A^{-1/p}` keeps X and M = XᵖA:
  :math:`N=\tfrac{(p+1)I-M}p,\ X\leftarrow XN,\ M\leftarrow N^pM` from :math:`M=zA,\ X=z^{1/p}I`. It converges for
  :math:`z\lambda_1<p+1`, and :math:`z=(p+1)/2s` with a bound :math:`s\ge\lambda_1` leaves a factor of two.
* Newton–Denman–Beavers in its product form (Newton–Schulz) keeps :math:`Y\to A^{1/2}` and :math:`Z\to A^{-1/2}`:
  :math:`E=\tfrac{3I-ZY}2,\ Y\leftarrow YE,\ Z\leftarrow EZ`, for :math:`\lambda_1/s<3`. A fourth root is two of them.

An eigenvalue m of M becomes :math:`m((p+1-m)/p)^p`, so small ones grow by at most :math:`((p+1)/p)^p` in a step, 2.25
for p = 2 and 2.44 for p = 4 (eigenvalues of ZY by 2.25). The number of steps grows with the logarithm of s over the
smallest eigenvalue, so s should be close to λ₁. The Frobenius norm exceeds it by up to √d.
:math:`\lVert A^8\rVert_F^{1/8}` is a bound as well, exceeds it by at most :math:`d^{1/16}`, and costs three products.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..dispatch.arguments import check_count, check_range, checked
from ..errors import ArgumentError, check_square
from ..precision import full_precision, largest, narrow, rounded_to, widen
from ..solvers.symmetry import checked_hermitian

__all__ = ["CoupledRoot", "coupled_inverse_root"]

Iteration = Literal["newton", "newton-db"]
Scale = Literal["bound", "frobenius"]
_POWERS_OF_TWO = 3  # the bound is the norm of A^8


class CoupledRoot(NamedTuple):
    """An inverse root and how far its iteration has converged.

    Attributes:
        root: approximate inverse roots (*, d, d), Hermitian.
        residual: (*,), the largest entry of :math:`|X^p(A+\\epsilon I)-I|` as the iteration sees it. It is of the order
            of rounding after convergence, and near 1 if there were too few steps or the matrix is singular.
    """

    root: Tensor
    residual: Tensor


@checked
def coupled_inverse_root(
    A: Tensor,
    p: int,
    *,
    eps: float = 0.0,
    steps: int = 10,
    iteration: Iteration = "newton-db",
    scale: Scale = "bound",
) -> CoupledRoot:
    r"""Approximate :math:`(A+\epsilon I)^{-1/p}` by a fixed number of matrix products, without gradient.

    It consists of products only, which accelerators compute fast, also many at a time. On a CPU, and wherever the
    result must be accurate, :func:`inverse_root` is the better choice: small eigenvalues need many steps here, and
    ``residual`` says whether there were enough. A result does not depend on the other matrices of a batch.

    Args:
        A: positive definite matrices (*, d, d), real or complex; half types are computed in float32.
        p: the root: 2 or 4 for ``"newton-db"``, any positive integer for ``"newton"``.
        eps: ε, added to the diagonal.
        steps: number of steps, of each of the two square roots for p = 4; DASH takes 10.
        iteration: ``"newton-db"`` (Newton–Denman–Beavers, DASH's choice) or ``"newton"`` (coupled Newton, as in
            Distributed Shampoo).
        scale: what the matrices are divided by: ``"bound"`` for :math:`\lVert A^8\rVert_F^{1/8}`, or ``"frobenius"``
            for the Frobenius norm, as in Distributed Shampoo.

    Returns:
        the named tuple ``(root, residual)``.

    Raises:
        ArgumentError: ``p``, ``eps`` or ``steps`` is out of range, or ``p`` is not 2 or 4 with ``"newton-db"``.
        AsymmetricError: a matrix is asymmetric beyond rounding error.
        NonFiniteError: the input contains NaN or Inf; the message lists the batch positions.

    Example:
        >>> A = torch.diag(torch.tensor([16.0, 1.0, 0.0625]))
        >>> root, residual = coupled_inverse_root(A, 4)
        >>> root.diagonal().round(decimals=3)
        tensor([0.5000, 1.0000, 2.0000])
        >>> bool(residual < 1e-4), bool(coupled_inverse_root(A, 4, steps=2).residual < 1e-4)
        (True, False)

    Reference: Modoranu et al., DASH: Faster Shampoo via batched block preconditioning and efficient inverse-root
    solvers, arXiv 2602.02016, and its released code; Guo and Higham, A Schur–Newton method for the matrix pth root and
    its inverse (2006). DASH scales by twice a random power iteration; the bound here is deterministic and never too
    small.
    """
    check_square(A, "coupled_inverse_root")
    check_count(p, "p", "coupled_inverse_root")
    check_count(steps, "steps", "coupled_inverse_root")
    check_range(eps, "eps", "coupled_inverse_root", 0)
    if iteration == "newton-db" and p not in (2, 4):
        raise ArgumentError(f"coupled_inverse_root: expected p=2 or 4 with iteration='newton-db', got {p}")
    with torch.no_grad(), full_precision(A):
        M = checked_hermitian(widen(A.detach()), "coupled_inverse_root", False, rounded_to(A))
        size = largest(M)[..., None, None]
        size = torch.where(size > 0, size, 1)
        M = _plus(M / size, eps / size)
        X, residual = (_newton if iteration == "newton" else _newton_db)(M, p, steps, _bound(M, scale))
        X = (X + X.mH) * 0.5 * size ** (-1 / p)
    return CoupledRoot(narrow(X, A.dtype), residual)


def _newton(A: Tensor, p: int, steps: int, bound: Tensor) -> tuple[Tensor, Tensor]:
    z = (p + 1) / (2 * bound)
    M, X = z * A, z ** (1 / p) * _identity(A)
    for _ in range(steps):
        N = _plus(-M / p, 1 + 1 / p)
        X, M = X @ N, torch.linalg.matrix_power(N, p) @ M
    return X, _distance(M)


def _newton_db(A: Tensor, p: int, steps: int, bound: Tensor) -> tuple[Tensor, Tensor]:
    Y, Z, residual = _square_roots(A, steps, bound)
    if p == 2:
        return Z, residual
    _, Z, second = _square_roots(Y, steps, bound.sqrt())
    return Z, torch.maximum(residual, second)


def _square_roots(A: Tensor, steps: int, bound: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The root, the inverse root, and the residual of the iteration."""
    Y, Z = A / bound, _identity(A)
    for _ in range(steps):
        E = _plus(-0.5 * (Z @ Y), 1.5)
        Y, Z = Y @ E, E @ Z
    return Y * bound.sqrt(), Z / bound.sqrt(), _distance(Z @ Y)


def _bound(A: Tensor, scale: Scale) -> Tensor:
    """An upper bound (*, 1, 1) of the largest eigenvalue; 1 for a zero matrix."""
    squarings = _POWERS_OF_TWO if scale == "bound" else 0
    total, share = torch.ones_like(A.real[..., :1, :1]), 1.0
    for k in range(squarings + 1):
        norm = torch.linalg.matrix_norm(A, keepdim=True)
        norm = torch.where(norm > 0, norm, 1)
        total, share = total * norm**share, share / 2
        if k < squarings:
            A = (A / norm) @ (A / norm)
    return total


def _plus(A: Tensor, shift: float | Tensor) -> Tensor:
    return A + shift * _identity(A)


def _identity(A: Tensor) -> Tensor:
    return torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).expand(A.shape)


def _distance(M: Tensor) -> Tensor:
    """The largest entry of M − I, (*,)."""
    return largest(M - _identity(M))
