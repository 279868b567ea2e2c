"""LAPACK's test matrices, and its acceptance test written a second time, in numpy and double precision."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch

from spectralgrad.testing import random_orthogonal

from .helpers import unit

BAR = 30.0  # LAPACK's test drivers accept ratios below this


class Kind(NamedTuple):
    """How to make a test matrix: its spectrum, its form, its scale, and whether the spectrum has random signs."""

    spectrum: str
    form: str = "diagonal"
    scale: str = "one"
    signed: bool = False


# The 21 types of LAPACK's driver DCHKST, in its order; the first 15 are those of DDRVST too.
# "huge" and "tiny" are the square roots of the overflow and underflow thresholds.
KINDS = {
    "01 zero": Kind("zero"),
    "02 identity": Kind("one"),
    "03 diagonal, even": Kind("even", signed=True),
    "04 diagonal, geometric": Kind("geometric", signed=True),
    "05 diagonal, clustered": Kind("clustered", signed=True),
    "06 diagonal, geometric, huge": Kind("geometric", scale="huge", signed=True),
    "07 diagonal, geometric, tiny": Kind("geometric", scale="tiny", signed=True),
    "08 dense, even": Kind("even", "dense", signed=True),
    "09 dense, geometric": Kind("geometric", "dense", signed=True),
    "10 dense, clustered": Kind("clustered", "dense", signed=True),
    "11 dense, even, huge": Kind("even", "dense", "huge", signed=True),
    "12 dense, even, tiny": Kind("even", "dense", "tiny", signed=True),
    "13 random entries": Kind("random", "entries"),
    "14 random entries, huge": Kind("random", "entries", "huge"),
    "15 random entries, tiny": Kind("random", "entries", "tiny"),
    "16 positive, even": Kind("even", "dense"),
    "17 positive, geometric": Kind("geometric", "dense"),
    "18 positive, clustered": Kind("clustered", "dense"),
    "19 positive, even, huge": Kind("even", "dense", "huge"),
    "20 positive, even, tiny": Kind("even", "dense", "tiny"),
    "21 dominant tridiagonal": Kind("geometric", "tridiagonal"),
}

# The types of DDRVBD (zero, identity, even, and its two scalings), with graded, tied and deficient ones beside them.
SINGULAR_KINDS = {
    "zero": Kind("zero"),
    "identity": Kind("one"),
    "even": Kind("even", "dense"),
    "even, huge": Kind("even", "dense", "huge"),
    "even, tiny": Kind("even", "dense", "tiny"),
    "geometric": Kind("geometric", "dense"),
    "clustered": Kind("clustered", "dense"),
    "tied": Kind("one", "dense"),
    "deficient": Kind("deficient", "dense"),
    "random entries": Kind("random", "entries"),
}


def hermitian_matrix(kind, n, dtype):
    """The Hermitian matrix (n, n) of a :class:`Kind`; the same one each time."""
    generator = np.random.default_rng(n)
    if kind.form == "entries":
        A = _entries(generator, n, n, dtype)
        return _scaled((A + A.conj().T) / 2, kind.scale, dtype)
    values = _spectrum(kind, n, dtype, generator).astype(_wide(dtype))
    form = {"diagonal": np.diag, "dense": _dense, "tridiagonal": _tridiagonal}[kind.form]
    return _scaled(form(values), kind.scale, dtype)


def rectangular_matrix(kind, m, n, dtype):
    """The matrix (m, n) of a :class:`Kind` whose spectrum holds the singular values."""
    generator = np.random.default_rng(m + n)
    if kind.form == "entries":
        return _scaled(_entries(generator, m, n, dtype), kind.scale, dtype)
    S = np.zeros((m, n), _wide(dtype))
    np.fill_diagonal(S, _spectrum(kind, min(m, n), dtype, generator))
    if kind.form == "dense":
        S = _orthogonal(m, S.dtype.kind) @ S @ _orthogonal(n, S.dtype.kind).conj().T
    return _scaled(S, kind.scale, dtype)


def eigh_bar(A, w, V):
    """The larger of LAPACK's two ratios ‖A − VΛVᴴ‖/(‖A‖ n u) and ‖VᴴV − I‖/(n u)."""
    return max(_residual(A, V, w, V.mH), _skewness(V))


def svd_bar(M, U, S, Vh):
    """The largest of LAPACK's three ratios for a singular value decomposition, full or reduced."""
    k = S.shape[-1]
    return max(_residual(M, U[:, :k], S, Vh[:k]), _skewness(U), _skewness(Vh.mH))


def _residual(A, left, values, right):
    """‖A − left·diag(values)·right‖₁/(‖A‖₁ n u), everything divided by max|A| first so that nothing overflows."""
    tolerance = max(A.shape) * unit(A.dtype)
    A, left, values, right = map(_double, (A, left, values, right))
    largest = np.abs(A).max() or np.finfo(float).tiny
    A, values = A / largest, values / largest
    return _norm(A - (left * values) @ right) / max(_norm(A), 1) / tolerance


def _skewness(V):
    """‖VᴴV − I‖₁/(n u)."""
    wide = _double(V)
    return _norm(wide.conj().T @ wide - np.eye(V.shape[1])) / (V.shape[0] * unit(V.dtype))


def _norm(A):
    return np.abs(A).sum(0).max()


def _double(x):
    return x.detach().resolve_conj().numpy().astype(_wide(x.dtype))


def _wide(dtype):
    return np.complex128 if dtype.is_complex else np.float64


def _spectrum(kind, n, dtype, generator):
    """DLATMS's diagonals: from 1 to ULP evenly, geometrically, or all but one at ULP; random signs on request."""
    ulp = torch.finfo(dtype).eps
    position = np.arange(n) / max(n - 1, 1)
    values = {
        "zero": 0 * position,
        "one": 1 + 0 * position,
        "even": 1 - position * (1 - ulp),
        "geometric": ulp**position,
        "clustered": np.where(position == 0, 1, ulp),
        "deficient": np.where(position <= 0.5, 1 + position, 0),
    }[kind.spectrum]
    return values * generator.choice([-1, 1], n) if kind.signed else values


def _entries(generator, m, n, dtype):
    A = generator.uniform(-1, 1, (2, m, n))
    return A[0] + 1j * A[1] if dtype.is_complex else A[0]


def _scaled(A, scale, dtype):
    info = torch.finfo(dtype)
    return torch.from_numpy(A * {"one": 1.0, "huge": info.max**0.5, "tiny": info.tiny**0.5}[scale]).to(dtype)


def _dense(values):
    Q = _orthogonal(len(values), values.dtype.kind)
    A = (Q * values) @ Q.conj().T
    return (A + A.conj().T) / 2


def _tridiagonal(values):
    """Off-diagonal entries at DCHKST's limit, half the geometric mean of their neighbours."""
    phase = np.exp(1j * np.arange(len(values) - 1)) if np.iscomplexobj(values) else 1
    beside = 0.5 * np.sqrt(values[1:] * values[:-1]) * phase
    return np.diag(values) + np.diag(beside, 1) + np.diag(beside.conj(), -1)


@cache
def _orthogonal(n, kind):
    return random_orthogonal(n, dtype=torch.complex128 if kind == "c" else torch.float64, seed=n).numpy()
