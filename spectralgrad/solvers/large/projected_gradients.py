"""Linear systems with a Hermitian operator on the complement of its known eigenvectors, by conjugate gradients."""

from __future__ import annotations

from itertools import count

import torch
from torch import Tensor

from ...dispatch.custom_operators import custom_operator
from ...dispatch.torch_internals import is_batched_gradient
from ...errors import ConvergenceError
from ...precision import rank_tolerance
from .krylov import Product, power_of_two, probes


@torch.no_grad()
def solve(product: Product, w: Tensor, V: Tensor, R: Tensor, sign: int, tol: float) -> Tensor:
    """Return Z (n, k) with (λᵢ − A) zᵢ = (I − VVᴴ) rᵢ on the complement of V, by conjugate gradients.

    V spans the eigenvectors at one end of the spectrum, so that ±(λᵢ − A) is positive definite on its complement. If it
    is not, beyond rounding errors of A, an eigenpair is missing or the cut goes through a tie, and an error says so.
    All columns are solved for at once, with memory for a few n×k matrices. The tolerance is relative to R before it is
    projected, so that a right-hand side of rounding errors counts as zero.

    Args:
        product: the operator.
        w: eigenvalues (k,).
        V: eigenvectors (n, k).
        R: right-hand sides (n, k).
        sign: 1 if the eigenvalues are the largest, −1 if they are the smallest.
        tol: relative residual.
    """

    def squares(X: Tensor) -> Tensor:
        return X.abs().square_().sum(0)

    largest = R.abs().amax(0)
    unit = torch.where(largest > 0, largest, 1)
    R = R / unit  # so that no square overflows or underflows, and likewise the products below
    scale = power_of_two(R * w - product(R)) or 1.0
    wanted = tol**2 * squares(R)
    R -= V @ (V.mH @ R)
    Z, P, size = torch.zeros_like(R), R.clone(), squares(R)
    limit, noise = max(1000, len(V)), _rounding(product, w, V, scale)
    for _ in range(limit):
        active = size > wanted
        if not bool(active.any()):
            return Z * (unit * (sign / scale))
        Q = P * w
        Q -= product(P)
        Q *= sign / scale
        Q -= V @ (V.mH @ Q)
        curvature = (P.conj() * Q).sum(0).real
        if bool((active & ~(curvature > noise * squares(P))).any()):
            raise ConvergenceError(_INDEFINITE)
        step = torch.where(active, size / torch.where(active, curvature, 1), 0)
        Z += step * P
        R -= step * Q
        before, size = size, squares(R)
        P *= torch.where(active, size / torch.where(active, before, 1), 0)
        P += R
    raise ConvergenceError(
        f"eigsh: the gradient's linear solves did not reach the relative residual {tol:.1g} in {limit} steps; the gap "
        "to the discarded eigenvalues is small. Choose k at a larger gap, or pass a larger tol."
    )


def _rounding(product: Product, w: Tensor, V: Tensor, scale: float) -> float:
    """Return the gap, divided by ``scale``, below which an eigenvalue cannot be told from those in ``w``."""
    X = probes(len(V), V.dtype, V.device)
    sizes = torch.linalg.vector_norm(product(X) / scale, dim=0) / torch.linalg.vector_norm(X, dim=0)
    return 4 * rank_tolerance(len(V), w.dtype) * max(float(sizes.max()), float(w.abs().max() / scale))


_INDEFINITE = (
    "eigsh: the gradient does not exist or an eigenpair was missed: the eigenvalues next to the cut are tied, or the "
    "operator is not Hermitian. Choose k such that the k-th and the next eigenvalue differ."
)


def solve_any(product: Product, w: Tensor, V: Tensor, R: Tensor, sign: int, tol: float) -> Tensor:
    """Solve as :func:`solve` does, by an operator if R comes from ``torch.autograd.grad(is_grads_batched=True)``.

    The vmap of that function knows operators only.
    """
    if not is_batched_gradient(R):
        return solve(product, w, V, R, sign, tol)
    key = next(_keys)
    _products[key] = product
    try:
        result: Tensor = solve_by_key(w, V, R, sign, tol, key)
        return result
    finally:
        del _products[key]


_keys = count()
_products: dict[int, Product] = {}


@custom_operator
def solve_by_key(w: Tensor, V: Tensor, R: Tensor, sign: int, tol: float, key: int) -> Tensor:
    """Solve with the product that is kept under ``key``."""
    return solve(_products[key], w, V, R, sign, tol)
