"""The distances every property is tested over, and 50-digit references that share no code with them.

References of values are definitions, evaluated by mpmath. References of gradients are differences of these values: 110
digits and a step of 1e-52 leave more than 50 digits. They are taken in factors X of matrices XᴴX, which vary freely and
keep the rank; pairs of one range have the factors KF and LF.
"""

from __future__ import annotations

import mpmath
import torch

import spectralgrad as sg

mp = mpmath.mp.clone()
mp.dps = 110
STEP = mp.mpf("1e-52")


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


# Integers, so that products are exact: the stored matrices have exactly this rank and these ties.
# name → factors X and Y of A = XᴴX and B = YᴴY
FACTORS = {
    "regular": ([[2, 1, 0], [0, 1, 1], [1, 0, 3]], [[1, 0, 0], [1, 2, 0], [0, 1, 1]]),
    "tie": ([[2, 0, 0], [0, 2, 0], [0, 0, 2]], [[1, 0, 0], [0, 1, 0], [0, 0, 3]]),
    "commuting-ties": ([[1, 0, 0], [0, 1, 0], [0, 0, 2]], [[3, 0, 0], [0, 3, 0], [0, 0, 3]]),
    "equal": ([[2, 1, 0], [0, 1, 1], [1, 0, 3]], [[2, 1, 0], [0, 1, 1], [1, 0, 3]]),
    "rank-two-and-three": ([[2, 1, 0, 1], [0, 1, 1, -1]], [[1, 0, 0, 2], [1, 2, 0, 0], [0, 1, 1, 1]]),
    "equal-rank-one": ([[2, 1, 0]], [[2, 1, 0]]),
    "tied-rank-two": ([[3, 0, 0], [0, 3, 0]], [[0, 1, 0], [1, 0, 0]]),
    "complex": ([[2, 1j, 0], [0, 1, 1 + 1j], [1j, 0, 3]], [[1, 0, 0], [1 - 1j, 2, 0], [0, 1j, 1]]),
    "complex-rank-two": ([[2, 1j, 1], [0, 1, 1 - 1j]], [[1, 1j, 0], [1 + 1j, 2, 1]]),
    "complex-tied-rank-two": ([[2, 2j, 0], [2j, 2, 0]], [[0, 1, 0], [3j, 0, 0]]),
}
# name → F, K and L of A = (KF)ᴴKF and B = (LF)ᴴLF, which have one range
ONE_RANGE = {
    "regular": (
        [[2, 1, 0], [0, 1, 1], [1, 0, 3]],
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[1, 0, 0], [1, 2, 0], [0, 1, 1]],
    ),
    "tie": ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[2, 0, 0], [0, 2, 0], [0, 0, 2]], [[1, 0, 0], [0, 1, 0], [0, 0, 3]]),
    "rank-two": ([[2, 1, 0], [0, 1, 1]], [[1, 1], [0, 2]], [[3, 0], [1, 1]]),
    "tied-rank-two": ([[1, 2, 2], [2, 1, -2]], [[1, 0], [0, 1]], [[0, 2], [2, 0]]),
    "half-tied-rank-two": ([[1, 2, 2], [2, 1, -2]], [[2, 0], [0, 2]], [[2, 1], [0, 1]]),
    "equal-rank-two": ([[2, 1, 0], [0, 1, 1]], [[1, 1], [0, 2]], [[1, 1], [0, 2]]),
    "complex-rank-two": ([[2, 1j, 0], [0, 1, 1 + 1j]], [[1, 1j], [0, 2]], [[3, 0], [1 - 1j, 1]]),
    "complex-tied-rank-two": ([[1, 2j, -2j], [2, 1j, 2j]], [[1, 0], [0, 1j]], [[1, 1j], [0, 2]]),
}


def leaves(matrices, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Tensors of lists of rows that require a gradient; of the complex type that belongs to dtype if one is complex."""
    found = [torch.tensor(matrix) for matrix in matrices]
    wanted = dtype.to_complex() if any(X.is_complex() for X in found) else dtype
    return [X.to(wanted).requires_grad_() for X in found]


def exact(X: torch.Tensor):
    return mp.matrix(X.tolist())


def function(A, f):
    """f on the range of a Hermitian matrix; eigenvalues below 1e-25 of the largest are zeros."""
    w, V = mp.eigh(A)
    top = max(abs(x) for x in w)
    return V * mp.diag([f(x) if abs(x) > top * mp.mpf("1e-25") else mp.mpf(0) for x in w]) * V.H


def root(A):
    return function(A, mp.sqrt)


def inverse_root(A):
    return function(A, lambda x: 1 / mp.sqrt(x))


def trace(A):
    return mp.re(sum(A[i, i] for i in range(A.rows)))


def tensor(M) -> torch.Tensor:
    entries = [complex(M[i, j]) for i in range(M.rows) for j in range(M.cols)]
    whole = torch.tensor(entries, dtype=torch.complex128).reshape(M.rows, M.cols)
    return whole if any(z.imag for z in entries) else whole.real


def reference(value, *arguments: torch.Tensor) -> tuple[float, list[torch.Tensor]]:
    """The value at these matrices and its gradients, for a complex matrix ∂/∂Re + i ∂/∂Im as in torch."""
    matrices = [exact(X.detach()) for X in arguments]
    at = value(*matrices)
    gradients = []
    for X, M in zip(arguments, matrices, strict=True):
        G = mp.matrix(M.rows, M.cols)
        for i, j in ((i, j) for i in range(M.rows) for j in range(M.cols)):
            here = M[i, j]
            for unit in (1, mp.mpc(0, 1)) if X.is_complex() else (1,):
                M[i, j] = here + unit * STEP
                G[i, j] += unit * (value(*matrices) - at) / STEP
            M[i, j] = here
        gradients.append(tensor(G).to(X.dtype))
    return float(at), gradients


def bures(X, Y):
    """The squared distance of XᴴX and YᴴY: the trace of (R B R)^(1/2), where R is the root of A."""
    A, B = X.H * X, Y.H * Y
    R = root(A)
    return trace(A) + trace(B) - 2 * trace(root(R * B * R))


def gaussian(x, X, y, Y):
    """The distance of Gaussians with means x, y (columns) and covariances XᴴX, YᴴY."""
    return trace((x - y).H * (x - y)) + bures(X, Y)


def frechet(X, Y):
    """The distance of samples, the rows of X and Y, by their moments; the covariance is divided by n − 1."""
    (x, C), (y, D) = (_moments(Z) for Z in (X, Y))
    return gaussian(x, C, y, D)


def _moments(X):
    n = X.rows
    mean = mp.matrix([[sum(X[i, j] for i in range(n)) / n] for j in range(X.cols)])
    centred = mp.matrix(n, X.cols)
    for i in range(n):
        for j in range(X.cols):
            centred[i, j] = (X[i, j] - mean[j]) / mp.sqrt(n - 1)
    return mean, centred


def transport(A, B):
    """T of TAT = B, which is zero within the null space of A: t in the range of A with tat = b, and c from there."""
    w, V = mp.eigh(A)
    keep = [k for k in range(A.rows) if w[k] > w[A.rows - 1] * mp.mpf("1e-25")]
    E = mp.matrix(A.rows, len(keep))
    for column, k in enumerate(keep):
        E[:, column] = V[:, k]
    a, b = E.H * A * E, E.H * B * E
    z, r = inverse_root(a), root(a)
    t = z * root(r * b * r) * z
    c = B * E * r * inverse_root(r * b * r) * z  # B (at)⁺, of which the part in the range is t
    c = c - E * (E.H * c)
    return E * t * E.H + c * E.H + E * c.H


def weighted_transport(G):
    """⟨G, T⟩ as a function of factors."""
    return lambda X, Y: trace(G.H * transport(X.H * X, Y.H * Y))


def log_euclidean(F, K, L):
    logA, logB = (function((M * F).H * (M * F), mp.log) for M in (K, L))
    return trace((logA - logB) * (logA - logB))


def affine_invariant(F, K, L):
    A, B = ((M * F).H * (M * F) for M in (K, L))
    Z = inverse_root(A)
    log = function(Z * B * Z, mp.log)
    return trace(log * log)
