"""Every public function as a function of one matrix, for properties that concern all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg

from ..nn import functional
from ..testing import with_spectrum

SIZE = 4


def matrix(seed: int = 0) -> Tensor:
    """A positive definite matrix (4, 4) with distinct eigenvalues."""
    return with_spectrum([1.0, 1.7, 2.9, 4.1], dtype=torch.float64, seed=seed)


def _other(A: Tensor) -> Tensor:
    """Another positive definite matrix that depends on ``A``."""
    return (A + 2 * torch.eye(SIZE, dtype=A.dtype, device=A.device)) @ A / 4


def _tall(A: Tensor) -> Tensor:
    """A matrix (6, 4) that depends on ``A``."""
    return torch.cat([A, A.sin()[:2]], -2)


def _features(A: Tensor) -> Tensor:
    """Features (5, 4, 3, 2) that depend on ``A``."""
    X = torch.cos(torch.arange(5 * SIZE * 6, dtype=A.dtype, device=A.device).square()).view(5, SIZE, 3, 2)
    return torch.einsum("cd,ndhw->nchw", A, X)


def _tokens(A: Tensor) -> Tensor:
    """Tokens (5, 6, 4) that depend on ``A``."""
    return _features(A).flatten(2).mT


def _together(*results: Tensor) -> Tensor:
    return torch.cat([x.flatten() for x in results])


def _pairs(w: Tensor, V: Tensor) -> Tensor:
    """Eigenvalues, and what does not depend on the signs or phases of eigenvectors."""
    return _together(w, (V * V.conj()).real)


def _triplets(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
    return _together(S, U[..., :2] @ Vh[..., :2, :])


def _procrustes(A: Tensor) -> Tensor:
    found = sg.procrustes(_tall(A)[:, :3], _tall(_other(A))[:, :3], scale=True)
    return _together(found.rotation, found.translation, found.scale)


def _clouds(A: Tensor) -> tuple[Tensor, Tensor]:
    return _tall(A)[:, :3], _tall(_other(A))[:, :3]


def _counts(A: Tensor) -> Tensor:
    """The mask of the first five of six points."""
    return torch.arange(6, device=A.device) < 5


def _normalize(A: Tensor) -> Tensor:
    return functional.normalize(_features(A), lambda C: sg.matrix_inv_sqrt(C), None, None).output


# Required arguments by their names, as functions of A, so that the gradient reaches every argument.
ARGUMENTS: dict[str, Callable[[Tensor], Any]] = {
    "A": lambda A: A,
    "B": _other,
    "C": lambda A: A @ A.sin(),
    "M": _tall,
    "X": _tall,
    "Y": lambda A: _tall(_other(A)),
    "operator": lambda A: A,
    "k": lambda A: 2,
    "p": lambda A: 1.5,
    "f": lambda A: torch.tanh,
    "tau": lambda A: 0.7,
}
FEATURES: dict[str, Callable[[Tensor], Any]] = {  # arguments of layers
    "X": _features,
    "content": _features,
    "S": lambda A: A,
    "views": lambda A: _features(A)[..., 0].permute(2, 0, 1),
}
# Functions whose arguments have other names, that need optional ones, or whose result is not unique; and calls in
# another form, whose name follows after a blank.
_CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "apply_matrix": lambda A: functional.apply_matrix(_features(A), A[0], A[None]),
    "cca_loss": lambda A: functional.cca_loss(_tokens(A), _tokens(_other(A))),
    "canonical_correlations with eps": lambda A: sg.canonical_correlations(A[:3], _other(A)[:3], eps=0.1),
    "color": lambda A: functional.color(_features(A), _features(A).cos()),
    "covariance_sqrt": lambda A: sg.covariance_sqrt(_tall(A), eps=0.1),
    "cross_covariance_pooling": lambda A: functional.cross_covariance_pooling(_tokens(A), _tokens(_other(A))),
    "dropcov_rate": lambda A: A.sum() + functional.dropcov_rate(_features(A), _features(A).mean((2, 3))),
    "eigh": lambda A: _pairs(*sg.eigh(A)),
    "eigh of a pencil": lambda A: _pairs(*sg.eigh(A, _other(A))),
    "eigh with k": lambda A: _pairs(*sg.eigh(A, k=2)),
    "eigsh": lambda A: _pairs(*sg.eigsh(A, 2)),
    "eigvalsh of a pencil": lambda A: sg.eigvalsh(A, _other(A)),
    "gaussian_wasserstein": lambda A: sg.gaussian_wasserstein(A[0], A, A[1], _other(A)),
    "lstsq": lambda A: sg.lstsq(_tall(A), _tall(_other(A))).solution,
    "lstsq with damping": lambda A: sg.lstsq(_tall(A), _tall(_other(A)), damping=A[0, 0].abs()).solution,
    "lyapunov": lambda A: sg.linalg.lyapunov(A, A @ A).solution,
    "matrix_power": lambda A: sg.matrix_power(A, 0.3),
    "newton_schulz": lambda A: _together(*sg.linalg.newton_schulz(A, steps=2)),
    "normalize": _normalize,
    "polar special": lambda A: sg.polar(A, special=True),
    "principal_projector": lambda A: functional.principal_projector(A, 2, 1e-3, sg.Pade()),
    "procrustes": _procrustes,
    "procrustes with a mask": lambda A: _together(*sg.procrustes(*_clouds(A), mask=_counts(A))[:4]),
    "rmsd with a mask": lambda A: sg.rmsd(*_clouds(A), weights=A[:, 0].abs().repeat(2)[:6], mask=_counts(A)),
    "svd": lambda A: _triplets(*sg.svd(_tall(A))),
    "wct": lambda A: functional.wct(_features(A), _features(A).cos()),
    "whiten pca": lambda A: functional.whiten(_features(A), whitening="pca"),
    "whitening_matrix": lambda A: functional.whitening_matrix(A, "zca", sg.Exact()),
}


def public_functions() -> dict[str, FunctionType]:
    """The public functions of tensors by name."""
    found = {name: getattr(room, name) for room in (sg.linalg, functional) for name in room.__all__}
    return {name: function for name, function in found.items() if isinstance(function, FunctionType)}


def _by_signature(name: str, function: FunctionType) -> Callable[[Tensor], Tensor]:
    """A call with examples of the required arguments."""
    examples = FEATURES if name in vars(functional)["__all__"] else ARGUMENTS
    required = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if not set(required) <= set(examples):
        raise LookupError(f"spectralgrad/diagnostics/every_function.py: add a call of {name}{(*required,)} to _CALLS")
    return lambda A: function(**{argument: examples[argument](A) for argument in required})


CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: _by_signature(name, function) for name, function in public_functions().items() if name not in _CALLS},
    **_CALLS,
}
# Every method that has an operation, with its default parameters.
METHODS = {
    **{f"eigh {m}": lambda A, m=m: _pairs(*sg.eigh(A, method=m)) for m in sg.methods("eigh")},
    **{f"svd {m}": lambda A, m=m: _triplets(*sg.svd(_tall(A), method=m)) for m in sg.methods("svd")},
    **{f"matrix_sqrt {m}": lambda A, m=m: sg.matrix_sqrt(A, method=m) for m in sg.methods("sqrt")},
    **{f"matrix_power {m}": lambda A, m=m: sg.matrix_power(A, 0.3, method=m) for m in sg.methods("power")},
    **{f"polar {m}": lambda A, m=m: sg.polar(_tall(A), method=m) for m in sg.methods("polar")},
}


def loss(call: Callable[[Tensor], Tensor], seed: int = 1) -> Callable[[Tensor], Tensor]:
    """A scalar function of every number that ``call`` returns."""

    def scalar(A: Tensor) -> Tensor:
        found = call(A)
        steps = torch.arange(found.numel(), dtype=found.real.dtype, device=found.device)
        return (torch.cos(seed + steps).view(found.shape) * found).sum().real

    return scalar
