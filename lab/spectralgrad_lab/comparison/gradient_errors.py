"""Errors of each method's gradient: at prescribed eigenvalue gaps, and on the matrices of a trained layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor

from spectralgrad.diagnostics.other_implementations import own_root
from spectralgrad.errors import SpectralError
from spectralgrad.testing import Reference, gradient_of, paired_matrix, relative_error

from .. import untrusted_json
from ..training.config.run_config import Config
from ..training.storage.records import json_ready
from .trained_layer import TrainedLayer

GAPS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 0.0)  # relative distance within each pair; 0 is a tie
SIZE, CONDITION, DRAWS = 8, 1e2, 3
DIGITS_UP_TO = 16  # size; for larger matrices 50 digits take too long, and the reference is the exact rule in float64
_MATRICES = 8  # matrices of the trained layer on which errors are measured


@dataclass(frozen=True)
class GradientErrors:
    """Relative errors of gradients; NaN where a method has no finite gradient.

    Attributes:
        function: the matrix function, ``"inv_sqrt"`` or ``"sqrt"``.
        gaps: relative gaps of 8×8 float32 matrices with condition number 100.
        at_gaps: method → one error per gap, the median of three draws.
        layer: method → median error on the matrices of the trained layer; None without a trained layer.
        missing: method → number of these matrices without a finite gradient.
        matrices: number of these matrices.
        spectrum: ascending eigenvalues of the first of these matrices.
        run: name of the run with the trained layer.
        size: of the matrices.
        of_features: True for errors of the features' gradient, as for covariance pooling.

    Example:
        >>> found = GradientErrors("sqrt", (0.1, 0.0), {"exact": (1e-7, 2e-7)})
        >>> GradientErrors.from_dict(found.to_dict()) == found
        True
    """

    function: str
    gaps: tuple[float, ...]
    at_gaps: dict[str, tuple[float, ...]]
    layer: dict[str, float] | None = None
    missing: dict[str, int] = field(default_factory=dict)
    matrices: int = 0
    spectrum: tuple[float, ...] = ()
    run: str = ""
    size: int = 0
    of_features: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(json_ready(vars(self)))

    @classmethod
    def from_dict(cls, values: Any) -> GradientErrors:
        """The inverse of :meth:`to_dict`.

        Raises:
            ValueError: a value is missing or has the wrong type.
        """
        found = cls(**_GRADIENTS(values, "gradients"))
        if any(len(errors) != len(found.gaps) for errors in found.at_gaps.values()):
            raise untrusted_json.InvalidValueError("gradients.at_gaps: expected an error for each gap")
        if set(found.layer or ()) - set(found.missing):
            raise untrusted_json.InvalidValueError("gradients.missing: expected every method of the layer")
        return found


_ERRORS = untrusted_json.number(0, infinite=True)
_GRADIENTS = untrusted_json.record(
    {
        "function": untrusted_json.one_of("sqrt", "inv_sqrt"),
        "gaps": untrusted_json.list_of(untrusted_json.number(0)),
        "at_gaps": untrusted_json.mapping_of(untrusted_json.list_of(_ERRORS)),
        "layer": untrusted_json.optional(untrusted_json.mapping_of(_ERRORS)),
    },
    {
        "missing": untrusted_json.mapping_of(untrusted_json.integer()),
        "matrices": untrusted_json.integer(),
        "spectrum": untrusted_json.list_of(untrusted_json.number()),
        "run": untrusted_json.text,
        "size": untrusted_json.integer(),
        "of_features": untrusted_json.one_of(True, False),
    },
)


def function_of(config: Config) -> str:
    """The matrix function whose gradient the runs use; the inverse square root if they use eigenvectors.

    Example:
        >>> function_of(Config(layer="batchnorm", pooling="covariance")), function_of(Config())
        ('sqrt', 'inv_sqrt')
    """
    return "sqrt" if config.operations[:1] == ("sqrt",) else "inv_sqrt"


def measure(
    function: str, methods: Sequence[str], trained: TrainedLayer | None = None, run: str = ""
) -> GradientErrors:
    """Measure errors at the gaps, and in a trained layer if one is given.

    Args:
        function: ``"inv_sqrt"`` or ``"sqrt"``.
        methods: names of methods.
        trained: the layer of a trained network; errors are measured on the first eight of its matrices.
        run: name of the run that trained it.

    Example:
        >>> found = measure("inv_sqrt", ("exact", "svd"))
        >>> max(found.at_gaps["exact"]) < 1e-4, found.at_gaps["svd"][-1]
        (True, nan)
    """
    cases = [[_drawn(function, gap, seed) for seed in range(DRAWS)] for gap in GAPS]
    at_gaps = {name: tuple(_median_error(function, name, case) for case in cases) for name in methods}
    if trained is None:
        return GradientErrors(function, GAPS, at_gaps)
    layer, missing = _of_features(methods, trained) if trained.pooled else _of_matrices(function, methods, trained)
    spectrum = tuple(torch.linalg.eigvalsh(trained.matrices[0].double()).tolist())
    size, count = trained.matrices.shape[-1], len(trained.matrices)
    return GradientErrors(
        function, GAPS, at_gaps, layer, missing, count, spectrum, run, size=size, of_features=trained.pooled
    )  # fmt: skip


def _of_matrices(
    function: str, methods: Sequence[str], trained: TrainedLayer
) -> tuple[dict[str, float], dict[str, int]]:
    """Median error of the gradient of the matrix function, and the number of matrices without a finite one."""
    case = [_case(function, A, seed) for seed, A in enumerate(trained.matrices[:_MATRICES])]
    layer = {name: _median_error(function, name, case) for name in methods}
    return layer, {name: _lost(function, name, trained.matrices) for name in methods}


def _of_features(methods: Sequence[str], trained: TrainedLayer) -> tuple[dict[str, float], dict[str, int]]:
    """Median errors and missing gradients for covariance pooling, measured on the gradient of the features.

    Its covariances have zero eigenvalues, where the square root has no gradient; the gradient of the features exists.
    """
    shape = (len(trained.matrices), *trained.matrices.shape[-2:])
    G = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    truth = trained.gradient("exact", G.double())[:_MATRICES]
    layer, missing = {}, {}
    for name in methods:
        found = trained.gradient(name, G)
        layer[name] = _median([relative_error(a, b) for a, b in zip(found[:_MATRICES], truth, strict=True)])
        missing[name] = int((~torch.isfinite(found).flatten(1).all(1)).sum())
    return layer, missing


def _drawn(function: str, gap: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A float32 matrix whose eigenvalues come in pairs at that relative gap."""
    return _case(function, paired_matrix(SIZE, CONDITION, gap, dtype=torch.float32, seed=seed), seed)


def _case(function: str, A: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Matrix, cotangent and true gradient."""
    G = torch.randn(A.shape, generator=torch.Generator().manual_seed(seed))
    G = (G + G.mT) / 2
    if len(A) <= DIGITS_UP_TO:
        return A, G, Reference(A).gradient(function, G)
    return A, G, _gradient(function, "exact", A.double(), G.double())


def _median_error(function: str, method: str, cases: list[tuple[Tensor, Tensor, Tensor]]) -> float:
    return _median([relative_error(_gradient(function, method, A, G), truth) for A, G, truth in cases])


def _median(errors: list[float]) -> float:
    """The median of the finite errors; NaN if half of them or more are not finite."""
    finite = [error for error in errors if math.isfinite(error)]
    return median(finite) if 2 * len(finite) > len(errors) else math.nan


def _lost(function: str, method: str, matrices: Tensor) -> int:
    """The number of matrices without a finite gradient."""
    gradient = _gradient(function, method, matrices, torch.ones_like(matrices))
    return int((~torch.isfinite(gradient).all(-1).all(-1)).sum())


def _gradient(function: str, method: str, A: Tensor, G: Tensor) -> Tensor:
    """The gradient, or NaN if the method raises an error for these matrices."""
    try:
        return gradient_of(own_root(function, method), A, G)
    except SpectralError:
        return torch.full_like(A, math.nan)
