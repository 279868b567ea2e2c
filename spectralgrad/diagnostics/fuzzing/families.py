"""Families of difficult random matrices. Each makes a batch of matrices with a norm of about one.

A family makes ``positive`` semi-definite matrices, ``hermitian`` matrices with eigenvalues of any sign, or ``features``
(d channels, N positions). In the Hadamard, Laplacian and diagonal families ties are exact: their entries have no
rounding errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

Array = np.ndarray
Random = np.random.Generator
Kind = Literal["positive", "hermitian", "features"]


class Family(NamedTuple):
    """The kind of the matrices, and the function that makes a batch: ``make(random, batch, d, is_complex)``."""

    kind: Kind
    make: Callable[[Random, int, int, bool], Array]


def _normal(random: Random, *shape: int, is_complex: bool) -> Array:
    x = random.standard_normal(shape)
    return x + 1j * random.standard_normal(shape) if is_complex else x


def _adjoint(M: Array) -> Array:
    return M.conj().swapaxes(-1, -2)


def _orthogonal(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    Q: Array = np.linalg.qr(_normal(random, batch, d, d, is_complex=is_complex))[0]
    return Q


def _dense(random: Random, values: Array, is_complex: bool) -> Array:
    """Hermitian matrices with eigenvalues ``values`` (batch, d) and random eigenvectors."""
    Q = _orthogonal(random, values.shape[0], values.shape[1], is_complex)
    A = (Q * values[:, None]) @ _adjoint(Q)
    return (A + _adjoint(A)) / 2


def _gram(X: Array) -> Array:
    return X @ _adjoint(X) / X.shape[-1]


def _wishart(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    return _gram(_normal(random, batch, d, 2 * d, is_complex=is_complex))


def _deficient(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    return _gram(_normal(random, batch, d, int(random.integers(1, d + 1)), is_complex=is_complex))


def _duplicated(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Covariances of features with channels that are bitwise copies of others."""
    return _gram(_duplicated_channels(random, batch, d, is_complex))


def _repeated(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    distinct = random.uniform(0.1, 1, (batch, max(1, d // 3)))
    return _dense(random, np.resize(distinct.T, (d, batch)).T, is_complex)


def _clustered(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """One to three clusters of a width between 1e-18 and 0.1, one of them possibly at zero."""
    centers = random.uniform(0, 1, (batch, 3)).round(2)
    chosen = np.take_along_axis(centers, random.integers(0, 3, (batch, d)), 1)
    width = 10.0 ** random.uniform(-18, -1, (batch, 1))
    return _dense(random, chosen + width * random.uniform(0, 1, (batch, d)), is_complex)


def _graded(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    return _dense(random, 10.0 ** -np.sort(random.uniform(0, random.choice([3, 8, 16, 40]), (batch, d))), is_complex)


def _scaled_rows(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Graded by rows and columns, so that entries have very different magnitudes."""
    scale = 10.0 ** -random.uniform(0, random.choice([2, 8, 30]), (batch, d))
    return scale[:, :, None] * _wishart(random, batch, d, is_complex) * scale[:, None]


def _diagonal(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Diagonal matrices of ones, zeros, repeated values and values down to the smallest representable number."""
    pool = np.array([0.0, 1.0, 0.5, 0.25, 1e-5, 1e-20, 1e-40, 1e-44, 1e-310, 5e-324])
    values = random.choice(pool, (batch, d)).astype(complex if is_complex else float)
    return values[:, :, None] * np.eye(d)


def _scalar(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Zero, the identity, a matrix of rank one, and the sum of the last two."""
    ones = np.ones((d, d), complex if is_complex else float)
    return random.choice([0.0, 1.0], (batch, 1, 1)) * np.eye(d) + random.choice([0.0, 1.0], (batch, 1, 1)) * ones / d


def _hadamard(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Eigenvectors with entries ±1 (or ±1, ±i) and integer eigenvalues, so that every tie is exact."""
    H = np.ones((1, 1))
    while 2 * len(H) <= d:
        H = np.block([[H, H], [H, -H]])
    n = len(H)
    phases = 1j ** random.integers(0, 4, (batch, n, 1)) if is_complex else random.choice([-1.0, 1.0], (batch, n, 1))
    Q = phases * H
    return (Q * random.integers(0, 4, (batch, 1, n))) @ _adjoint(Q) / n


def _laplacian(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Laplacians of random, complete, cyclic and star-shaped graphs."""
    chain = np.eye(d, k=1) + np.eye(d, k=1 - d) * (d > 2)
    star = np.zeros((d, d))
    star[0, 1:] = 1
    shapes = [np.triu(np.ones((d, d)), 1), chain, star]
    upper = np.stack([shapes[k] if k < 3 else _random_graph(random, d) for k in random.integers(0, 5, batch)])
    phases = 1j ** random.integers(0, 4, upper.shape) if is_complex else 1
    edges = upper * phases
    return np.eye(d) * (upper + upper.swapaxes(-1, -2)).sum(-1, keepdims=True) - edges - _adjoint(edges)


def _random_graph(random: Random, d: int) -> Array:
    return np.triu(random.random((d, d)) < random.uniform(0.05, 0.9), 1).astype(float)


def _wilkinson(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Wilkinson matrices joined by weak couplings: pairs and clusters that agree to all digits but the last."""
    block = int(random.choice([3, 7, 11, 21]))
    place = np.arange(d)
    coupling = np.ones((batch, d - 1))
    coupling[:, place[1:] % block == 0] = 10.0 ** random.uniform(-18, -4, (batch, 1))
    beside = np.eye(d, k=1)[None] * np.pad(coupling, ((0, 0), (0, 1)))[:, :, None] * (1j if is_complex else 1)
    return np.eye(d) * (abs(place % block - block // 2) + 2.0) + beside + _adjoint(beside)


def _random_entries(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    A = _normal(random, batch, d, d, is_complex=is_complex)
    return (A + _adjoint(A)) / 2


def _mirrored(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Eigenvalues in pairs ±λ, whose singular values are equal."""
    values = random.uniform(0, 1, (batch, d)).round(1)
    values[:, 1::2] = -values[:, : d - 1 : 2]
    return _dense(random, values, is_complex)


def _positions(random: Random, d: int) -> int:
    """A number of positions: fewer than channels, equally many, or more."""
    return int(random.choice([1, max(1, d // 2), max(1, d - 1), d, 2 * d, 3 * d + 1]))


def _random_features(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    return _normal(random, batch, d, _positions(random, d), is_complex=is_complex)


def _few_positions(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    return _normal(random, batch, d, int(random.integers(1, max(2, d))), is_complex=is_complex)


def _duplicated_channels(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    X: Array = _random_features(random, batch, d, is_complex)[:, random.integers(0, max(1, d // 2), d)]
    return X


def _low_rank_features(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    r, n = int(random.integers(1, max(2, d // 2))), _positions(random, d)
    left, right = (_normal(random, batch, *shape, is_complex=is_complex) for shape in ((d, r), (r, n)))
    return left @ right


def _constant_features(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Features with about half of the channels constant; half of the batch has a mean far from zero."""
    X = _random_features(random, batch, d, is_complex)
    X[:, random.random(d) < 0.5] = 1.0
    return X + random.choice([0.0, 100.0], (batch, 1, 1))


def _tied_features(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    """Rows or columns of an orthogonal matrix, scaled to have few distinct singular values."""
    n = _positions(random, d)
    Q = _orthogonal(random, batch, max(d, n), is_complex)[:, :d, :n]
    return Q * random.choice([1.0, 0.5, 0.0], (batch, 1, n) if n <= d else (batch, d, 1))


def _graded_features(random: Random, batch: int, d: int, is_complex: bool) -> Array:
    X = _random_features(random, batch, d, is_complex)
    return X * 10.0 ** -random.uniform(0, random.choice([2, 6, 20]), (batch, d, 1))


FAMILIES: dict[str, Family] = {
    "wishart": Family("positive", _wishart),
    "rank-deficient": Family("positive", _deficient),
    "duplicated": Family("positive", _duplicated),
    "repeated": Family("positive", _repeated),
    "clustered": Family("positive", _clustered),
    "graded": Family("positive", _graded),
    "scaled-rows": Family("positive", _scaled_rows),
    "diagonal": Family("positive", _diagonal),
    "scalar": Family("positive", _scalar),
    "hadamard": Family("positive", _hadamard),
    "laplacian": Family("positive", _laplacian),
    "wilkinson": Family("positive", _wilkinson),
    "random": Family("hermitian", _random_entries),
    "mirrored": Family("hermitian", _mirrored),
    "features": Family("features", _random_features),
    "few-positions": Family("features", _few_positions),
    "duplicated-channels": Family("features", _duplicated_channels),
    "low-rank": Family("features", _low_rank_features),
    "constant-channels": Family("features", _constant_features),
    "tied-features": Family("features", _tied_features),
    "graded-features": Family("features", _graded_features),
}
