"""The distances every property is tested over, and 50-digit references that share no code with them."""

from __future__ import annotations

import mpmath
import torch

import spectralgrad as sg

mp = mpmath.mp.clone()
mp.dps = 50


def diagonal(A: torch.Tensor) -> torch.Tensor:
    return A.diagonal(dim1=-2, dim2=-1)


# name → (function of two positive matrices, degree of homogeneity in both)
PAIRS = {
    "bures_wasserstein": (sg.bures_wasserstein, 1.0),
    "bures_wasserstein-root": (lambda A, B: sg.bures_wasserstein(A, B, squared=False), 0.5),
    "gaussian_wasserstein": (lambda A, B: sg.gaussian_wasserstein(diagonal(A), A, diagonal(B), B), None),
    "gaussian_transport": (sg.gaussian_transport, 0.0),
    "log_euclidean": (sg.log_euclidean, 0.0),
    "affine_invariant": (sg.affine_invariant, 0.0),
    "affine_invariant-root": (lambda A, B: sg.affine_invariant(A, B, squared=False), 0.0),
}
OF_LOGARITHMS = [name for name in PAIRS if name.startswith(("log_", "affine_"))]  # infinite between different ranges
SMOOTH = [name for name in PAIRS if not name.endswith("-root")]  # differentiable where the matrices are equal
# name → shapes of two samples: fewer than features, more, and one of each
SAMPLES = {"few": ((3, 5), (4, 5)), "many": ((9, 4), (8, 4)), "both": ((3, 4), (7, 4))}


def samples(name: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return [
        (torch.randn(shape, dtype=wide, generator=generator) + k).to(dtype) for k, shape in enumerate(SAMPLES[name])
    ]


def exact(X: torch.Tensor):
    return mp.matrix(X.tolist())


def function(A, f):
    """f on the range of a symmetric matrix; eigenvalues below 1e-25 of the largest are zeros."""
    w, V = mp.eigsy(A)
    top = max(abs(x) for x in w)
    return V * mp.diag([f(x) if abs(x) > top * mp.mpf("1e-25") else mp.mpf(0) for x in w]) * V.T


def trace(A):
    return sum(A[i, i] for i in range(A.rows))


def tensor(M) -> torch.Tensor:
    rows = [[float(M[i, j]) for j in range(M.cols)] for i in range(M.rows)]
    return torch.tensor(rows, dtype=torch.float64)


def bures(X: torch.Tensor, Y: torch.Tensor) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The squared distance of XᵀX and YᵀY for factors with at most d rows, and the gradients in X and Y."""
    X, Y = exact(X), exact(Y)
    product = X * Y.T
    inverse = function(product.T * product, lambda x: 1 / mp.sqrt(x))
    value = trace(X * X.T) + trace(Y * Y.T) - 2 * trace(function(product.T * product, mp.sqrt))
    Q = product * inverse
    return float(value), tensor(2 * (X - Q * Y)), tensor(2 * (Y - Q.T * X))


def transport(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    A, B = exact(A), exact(B)
    R, Z = function(A, mp.sqrt), function(A, lambda x: 1 / mp.sqrt(x))
    return tensor(Z * function(R * B * R, mp.sqrt) * Z)


def riemannian(A: torch.Tensor, B: torch.Tensor) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The squared affine-invariant distance of matrices of equal range, and its gradients at full rank."""
    A, B = exact(A), exact(B)
    Z = function(A, lambda x: 1 / mp.sqrt(x))
    log = function(Z * B * Z, mp.log)
    over = function(Z * B * Z, lambda x: mp.log(x) / x)
    return float(trace(log * log)), tensor(-2 * Z * log * Z), tensor(2 * Z * over * Z)
