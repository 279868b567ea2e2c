"""Every public function as a function of one matrix, for properties that concern all of them."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.nn import functional
from spectralgrad.testing import with_spectrum

SIZE = 4


def matrix(seed: int = 0) -> Tensor:
    """A positive definite matrix (4, 4) with distinct eigenvalues."""
    return with_spectrum([1.0, 1.7, 2.9, 4.1], dtype=torch.float64, seed=seed)


def _other(A: Tensor) -> Tensor:
    """Another positive definite matrix that depends on ``A``."""
    return (A + 2 * torch.eye(SIZE, dtype=A.dtype)) @ A / 4


def _tall(A: Tensor) -> Tensor:
    """A matrix (6, 4) that depends on ``A``."""
    return torch.cat([A, A.sin()[:2]], -2)


def _features(A: Tensor) -> Tensor:
    """Features (5, 4, 3, 2) that depend on ``A``."""
    X = torch.cos(torch.arange(5 * SIZE * 6, dtype=A.dtype).square()).view(5, SIZE, 3, 2)
    return torch.einsum("cd,ndhw->nchw", A, X)


def _tokens(A: Tensor) -> Tensor:
    """Tokens (5, 6, 4) that depend on ``A``."""
    return _features(A).flatten(2).mT


def _together(*results: Tensor) -> Tensor:
    return torch.cat([x.flatten() for x in results])


def _pairs(w: Tensor, V: Tensor) -> Tensor:
    return _together(w, V.square())


def _triplets(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
    return _together(S, U[..., :2] @ Vh[..., :2, :])


def _procrustes(A: Tensor) -> Tensor:
    found = sg.procrustes(_tall(A)[:, :3], _tall(_other(A))[:, :3], scale=True)
    return _together(found.rotation, found.translation, found.scale)


def _normalize(A: Tensor) -> Tensor:
    return functional.normalize(_features(A), lambda C: sg.matrix_inv_sqrt(C), None, None).output


# The names before a blank are those of the public functions. Features and other arguments are functions of A, so that
# the gradient reaches every argument.
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "affine_invariant": lambda A: sg.affine_invariant(A, _other(A)),
    "apply_matrix": lambda A: functional.apply_matrix(_features(A), A[0], A[None]),
    "bures_wasserstein": lambda A: sg.bures_wasserstein(A, _other(A)),
    "color": lambda A: functional.color(_features(A), _features(A).cos()),
    "covariance": lambda A: sg.covariance(_tall(A)),
    "covariance_pooling": lambda A: functional.covariance_pooling(_features(A)),
    "covariance_sqrt": lambda A: sg.covariance_sqrt(_tall(A), eps=0.1),
    "cross_covariance_pooling": lambda A: functional.cross_covariance_pooling(_tokens(A), _tokens(_other(A))),
    "dropcov_rate": lambda A: A.sum() + functional.dropcov_rate(_features(A), _features(A).mean((2, 3))),
    "eigh": lambda A: _pairs(*sg.eigh(A)),
    "eigh of a pencil": lambda A: _pairs(*sg.eigh(A, _other(A))),
    "eigh with k": lambda A: _pairs(*sg.eigh(A, k=2)),
    "eigsh": lambda A: _pairs(*sg.eigsh(A, 2)),
    "eigvalsh": lambda A: sg.eigvalsh(A),
    "eigvalsh of a pencil": lambda A: sg.eigvalsh(A, _other(A)),
    "frechet_distance": lambda A: sg.frechet_distance(_tall(A), _tall(_other(A))),
    "gaussian_transport": lambda A: sg.gaussian_transport(A, _other(A)),
    "gaussian_wasserstein": lambda A: sg.gaussian_wasserstein(A[0], A, A[1], _other(A)),
    "log_euclidean": lambda A: sg.log_euclidean(A, _other(A)),
    "low_rank": lambda A: sg.low_rank(_tall(A), 2),
    "lyapunov": lambda A: sg.linalg.lyapunov(A, A @ A).solution,
    "matrix_exp": lambda A: sg.matrix_exp(A),
    "matrix_function": lambda A: sg.matrix_function(A, torch.tanh),
    "matrix_inv_sqrt": lambda A: sg.matrix_inv_sqrt(A),
    "matrix_log": lambda A: sg.matrix_log(A),
    "matrix_power": lambda A: sg.matrix_power(A, 0.3),
    "matrix_sqrt": lambda A: sg.matrix_sqrt(A),
    "newton_schulz": lambda A: _together(*sg.linalg.newton_schulz(A, steps=2)),
    "normalize": _normalize,
    "nuclear_norm": lambda A: sg.nuclear_norm(_tall(A)),
    "polar": lambda A: sg.polar(_tall(A)),
    "polar special": lambda A: sg.polar(A, special=True),
    "principal_projector": lambda A: functional.principal_projector(A, 2, 1e-3, sg.Pade()),
    "procrustes": _procrustes,
    "rankfeat": lambda A: functional.rankfeat(_features(A)),
    "schatten_norm": lambda A: sg.schatten_norm(_tall(A), 1.5),
    "singular_value_function": lambda A: sg.singular_value_function(_tall(A), torch.tanh),
    "singular_value_threshold": lambda A: sg.singular_value_threshold(_tall(A), 0.7),
    "spectral_norm": lambda A: sg.spectral_norm(_tall(A)),
    "spectral_projector": lambda A: sg.spectral_projector(A, 2),
    "svd": lambda A: _triplets(*sg.svd(_tall(A))),
    "svdvals": lambda A: sg.svdvals(_tall(A)),
    "upper_triangle": lambda A: functional.upper_triangle(A),
    "wct": lambda A: functional.wct(_features(A), _features(A).cos()),
    "whiten": lambda A: functional.whiten(_features(A)),
    "whiten pca": lambda A: functional.whiten(_features(A), whitening="pca"),
    "whitening_matrix": lambda A: functional.whitening_matrix(A, "zca", sg.Exact()),
    "whitening_mse": lambda A: functional.whitening_mse(_features(A)[..., 0].permute(2, 0, 1)),
}
# Every method that has an operation, with its default parameters.
METHODS = {
    **{f"eigh {m}": lambda A, m=m: _pairs(*sg.eigh(A, method=m)) for m in sg.methods("eigh")},
    **{f"svd {m}": lambda A, m=m: _triplets(*sg.svd(_tall(A), method=m)) for m in sg.methods("svd")},
    **{f"matrix_sqrt {m}": lambda A, m=m: sg.matrix_sqrt(A, method=m) for m in sg.methods("sqrt")},
    **{f"matrix_power {m}": lambda A, m=m: sg.matrix_power(A, 0.3, method=m) for m in sg.methods("power")},
    **{f"polar {m}": lambda A, m=m: sg.polar(_tall(A), method=m) for m in sg.methods("polar")},
}


def public_functions() -> set[str]:
    """The names of the public functions of tensors."""
    rooms = (sg.linalg, functional)
    return {name for room in rooms for name in room.__all__ if isinstance(getattr(room, name), FunctionType)}


def loss(call: Callable[[Tensor], Tensor], seed: int = 1) -> Callable[[Tensor], Tensor]:
    """A scalar function of every number that ``call`` returns."""

    def scalar(A: Tensor) -> Tensor:
        found = call(A)
        weights = torch.cos(seed + torch.arange(found.numel(), dtype=found.dtype)).view(found.shape)
        return (weights * found).sum()

    return scalar
