"""The table of homogeneous operations that are checked at other scales."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import linalg
from ...nn import DecorrelatedBatchNorm1d, PCADenoising1d
from ...nn.functional import covariance_pooling, wct, whiten
from .families import Kind
from .scaling import Homogeneous

_POSITIVE: tuple[Kind, ...] = ("positive",)
_HERMITIAN: tuple[Kind, ...] = ("positive", "hermitian")
_FEATURES: tuple[Kind, ...] = ("features",)
_ANY: tuple[Kind, ...] = ("positive", "hermitian", "features")


def _one(X: Tensor) -> tuple[Tensor, ...]:
    return (X,)


def _two(X: Tensor) -> tuple[Tensor, ...]:
    return X, X.roll(1, 0)


def _separated(M: Tensor) -> tuple[Tensor, ...]:
    """Matrices with distinct eigenvalues and singular values, so that their vectors are determined."""
    m, n = M.shape[-2:]
    diagonal = 4 * torch.arange(1, min(m, n) + 1, dtype=M.real.dtype).to(M.dtype)
    return (M + torch.nn.functional.pad(torch.diag(diagonal), (0, max(0, n - m), 0, max(0, m - n))),)


def _separated_pencil(A: Tensor) -> tuple[Tensor, ...]:
    return (*_separated(A), _definite(A)[1])


def _definite(A: Tensor) -> tuple[Tensor, ...]:
    identity = torch.eye(A.shape[-1], dtype=A.dtype)
    return A + identity, A.roll(1, 0) + 2 * identity


def _points(X: Tensor) -> tuple[Tensor, ...]:
    """Samples of up to 4 features, or points with as many coordinates; three more cannot be aligned exactly."""
    P = X[:, :4].mT
    more = P.real.new_tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0]]).to(P.dtype)
    first, second = (row[:, None].expand(len(P), 3, P.shape[-1]) for row in more)
    return torch.cat([P, first], -2), torch.cat([2 * P.roll(1, 0) + 0.5, second], -2)


def _moments(A: Tensor) -> tuple[Tensor, ...]:
    return A[..., 0], A, A.roll(1, 0)[..., -1], A.roll(1, 0)


def _damped(M: Tensor) -> tuple[Tensor, ...]:
    """Matrices, right-hand sides and a damping of the same size."""
    return M, M.roll(1, 0)[..., :2], M.real.new_full((len(M),), 0.5)


def _level(M: Tensor) -> tuple[Tensor, ...]:
    return M, M.real.new_full((len(M),), 0.25)


def _of(kinds: tuple[Kind, ...], call: Any, degree: float) -> Homogeneous:
    return Homogeneous(kinds, _one, call, (((1,), (degree,)),))


def _pair(call: Any, degree: float, arguments: Any = _two) -> Homogeneous:
    return Homogeneous(_POSITIVE, arguments, call, (((1, 1), (degree,)),))


def _layer(call: Any, degree: float) -> Homogeneous:
    return Homogeneous(_FEATURES, _one, call, (((1,), (degree,)),), real=True)


def _vectors(V: Tensor) -> Tensor:
    """What does not depend on the phase of eigenvectors: the moduli of their entries, squared."""
    return (V.conj() * V).real


def _eigh(*matrices: Tensor, method: Any = "svd-pade") -> tuple[Tensor, Tensor]:
    w, V = linalg.eigh(*matrices, method=method)
    return w, _vectors(V)


def _eigsh(A: Tensor) -> tuple[Tensor, Tensor]:
    w, V = linalg.eigsh(A, (A.shape[-1] + 2) // 3)
    return w, _vectors(V)


def _svd(M: Tensor, method: Any) -> tuple[Tensor, Tensor, Tensor]:
    U, S, Vh = linalg.svd(M, method=method)
    return _vectors(U), S, _vectors(Vh)


def _power(p: float) -> Any:
    return lambda A, method="exact": linalg.matrix_power(A, p, method=method)


def _normalized(layer: Any) -> Any:
    """A layer without ε for features (batch, d, N); one position is not enough."""
    return lambda X: layer(X.shape[1], eps=0.0, affine=False, dtype=X.dtype)(
        X if X.shape[-1] > 1 else torch.cat([X, -X], -1)
    )


HOMOGENEOUS: dict[str, Homogeneous] = {
    "eigh": Homogeneous(_HERMITIAN, _separated, _eigh, (((1,), (1, 0)),)),
    "eigsh": Homogeneous(_HERMITIAN, _separated, _eigsh, (((1,), (1, 0)),)),
    "eigvalsh": _of(_HERMITIAN, linalg.eigvalsh, 1),
    "eigh of pencils": Homogeneous(_POSITIVE, _separated_pencil, _eigh, (((1, 0), (1, 0)), ((0, 1), (-1, -1)))),
    "eigvalsh of pencils": Homogeneous(_POSITIVE, _definite, linalg.eigvalsh, (((1, 0), (1,)), ((0, 1), (-1,)))),
    "svd": Homogeneous(_ANY, _separated, _svd, (((1,), (0, 1, 0)),)),
    "svdvals": _of(_ANY, linalg.svdvals, 1),
    "matrix_sqrt": _of(_POSITIVE, linalg.matrix_sqrt, 0.5),
    "matrix_inv_sqrt": _of(_POSITIVE, linalg.matrix_inv_sqrt, -0.5),
    "matrix_power 0.375": _of(_POSITIVE, _power(0.375), 0.375),
    "matrix_power 1.5": _of(_POSITIVE, _power(1.5), 1.5),
    "matrix_power -2.5": _of(_POSITIVE, _power(-2.5), -2.5),
    "matrix_power 2": _of(_HERMITIAN, _power(2), 2),
    "matrix_power 3": _of(_HERMITIAN, _power(3), 3),
    "matrix_power -1": _of(_HERMITIAN, _power(-1), -1),
    "spectral_projector": _of(_HERMITIAN, lambda A: linalg.spectral_projector(A, (A.shape[-1] + 1) // 2), 0),
    "polar": _of(_ANY, linalg.polar, 0),
    "low_rank": _of(_ANY, lambda M: linalg.low_rank(M, (min(M.shape[-2:]) + 1) // 2), 1),
    "singular_value_function": _of(_ANY, lambda M: linalg.singular_value_function(M, lambda s: 3 * s), 1),
    "singular_value_threshold": Homogeneous(_ANY, _level, linalg.singular_value_threshold, (((1, 1), (1,)),)),
    "pinv": _of(_ANY, linalg.pinv, -1),
    "lstsq": Homogeneous(
        _ANY,
        lambda M: _damped(M)[:2],
        lambda M, B: linalg.lstsq(M, B).solution,
        (((1, 0), (-1,)), ((0, 1), (1,)), ((1, 1), (0,))),
    ),
    "lstsq with damping": Homogeneous(
        _ANY,
        _damped,
        lambda M, B, damping: linalg.lstsq(M, B, damping=damping).solution,
        (((1, 0, 1), (-1,)), ((0, 1, 0), (1,)), ((1, 1, 1), (0,))),
    ),
    "solve_hermitian": Homogeneous(
        _HERMITIAN, _two, linalg.solve_hermitian, (((1, 0), (-1,)), ((0, 1), (1,)), ((1, 1), (0,)))
    ),
    "solve_lyapunov": Homogeneous(
        _POSITIVE, _definite, linalg.solve_lyapunov, (((1, 0), (-1,)), ((0, 1), (1,)), ((1, 1), (0,)))
    ),
    "solve_sylvester": Homogeneous(
        _POSITIVE,
        lambda A: (*_definite(A), A.flip(0)),
        linalg.solve_sylvester,
        (((1, 1, 0), (-1,)), ((0, 0, 1), (1,)), ((1, 1, 1), (0,))),
    ),
    "solve_sylvester of general matrices": Homogeneous(
        _POSITIVE,
        lambda A: (*_definite(A), A.flip(0)),
        lambda A, B, C: linalg.solve_sylvester(A, B, C, hermitian=False),
        (((1, 1, 0), (-1,)), ((0, 0, 1), (1,)), ((1, 1, 1), (0,))),
    ),
    "nuclear_norm": _of(_ANY, linalg.nuclear_norm, 1),
    "spectral_norm": _of(_ANY, linalg.spectral_norm, 1),
    "schatten_norm": _of(_ANY, lambda M: linalg.schatten_norm(M, 3), 1),
    "spectral_entropy": _of(_ANY, linalg.spectral_entropy, 0),
    "effective_rank": _of(_ANY, lambda M: linalg.effective_rank(M, eps=1e-7), 0),
    "stable_rank": _of(_ANY, linalg.stable_rank, 0),
    "condition_number": _of(_ANY, linalg.condition_number, 0),
    "bures_wasserstein": _pair(linalg.bures_wasserstein, 1),
    "gaussian_wasserstein": Homogeneous(_POSITIVE, _moments, linalg.gaussian_wasserstein, (((1, 2, 1, 2), (2,)),)),
    "frechet_distance": Homogeneous(_FEATURES, _points, linalg.frechet_distance, (((1, 1), (2,)),)),
    "frechet_distance not squared": Homogeneous(
        _FEATURES, _points, lambda X, Y: linalg.frechet_distance(X, Y, squared=False), (((1, 1), (1,)),)
    ),
    "gaussian_transport": Homogeneous(
        _POSITIVE, _two, linalg.gaussian_transport, (((1, 0), (-0.5,)), ((0, 1), (0.5,)), ((1, 1), (0,)))
    ),
    "log_euclidean": _pair(linalg.log_euclidean, 0, _definite),
    "affine_invariant": _pair(linalg.affine_invariant, 0, _definite),
    "procrustes": Homogeneous(_FEATURES, _points, lambda X, Y: linalg.procrustes(X, Y)[:4], (((1, 1), (0, 1, 0, 2)),)),
    "procrustes with scale": Homogeneous(
        _FEATURES,
        _points,
        lambda X, Y: linalg.procrustes(X, Y, scale=True)[:4],
        (((1, 0), (0, 0, -1, 0)), ((0, 1), (0, 1, 1, 2)), ((1, 1), (0, 1, 0, 2))),
    ),
    "rmsd": Homogeneous(_FEATURES, _points, linalg.rmsd, (((1, 1), (2,)),)),
    "rmsd not squared": Homogeneous(
        _FEATURES, _points, lambda X, Y: linalg.rmsd(X, Y, squared=False), (((1, 1), (1,)),)
    ),
    "rmsd with scale": Homogeneous(
        _FEATURES, _points, lambda X, Y: linalg.rmsd(X, Y, scale=True), (((1, 0), (0,)), ((0, 1), (2,)))
    ),
    "canonical_correlations": Homogeneous(
        _FEATURES, _points, linalg.canonical_correlations, (((1, 0), (0,)), ((0, 1), (0,)))
    ),
    "covariance": _of(_FEATURES, linalg.covariance, 2),
    "covariance_sqrt": _of(_FEATURES, linalg.covariance_sqrt, 1),
    "covariance_pooling": _layer(covariance_pooling, 1),
    "whiten on range": _layer(lambda X, method: whiten(X, eps=0.0, method=method), 0),
    "wct on range": Homogeneous(
        _FEATURES, _two, lambda X, Y: wct(X, Y, eps=0.0), (((1, 0), (0,)), ((0, 1), (1,)), ((1, 1), (1,))), real=True
    ),
    "DecorrelatedBatchNorm": _layer(_normalized(DecorrelatedBatchNorm1d), 0),
    "PCADenoising": _layer(_normalized(PCADenoising1d), 0),
}
