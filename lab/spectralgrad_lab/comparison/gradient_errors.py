"""How far each method's gradient is from the true one: at prescribed gaps, and in the layer that was trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor

from spectralgrad import matrix_inv_sqrt, matrix_sqrt
from spectralgrad.errors import SpectralError
from spectralgrad.testing import Reference, paired_spectrum, relative_error, with_spectrum

from .. import untrusted_json
from ..training.config import Config
from ..training.records import packed
from .trained_layer import TrainedLayer

GAPS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 0.0)  # relative distance within each pair; 0 is a tie
SIZE, CONDITION, DRAWS = 8, 1e2, 3
DIGITS_UP_TO = 16  # larger matrices have the exact gradient in float64 for a reference
_MATRICES = 8


@dataclass(frozen=True)
class Gradients:
    """Relative errors of gradients, NaN where there is none.

    Attributes:
        function: the matrix function, ``"inv_sqrt"`` or ``"sqrt"``.
        gaps: relative gaps of float32 matrices 8×8 with condition number 100.
        at_gaps: method → an error a gap, the median of three draws.
        layer: method → error on what the trained layer decomposes, the median; None without a trained layer.
        missing: method → on how many of these matrices it has no finite gradient.
        matrices: how many there are.
        spectrum: ascending eigenvalues of the first of these matrices.
        run: whose layer it is.
        size: of the matrices.
        of_features: whether the errors in the layer are those of its features' gradient, as for covariance pooling.

    Example:
        >>> found = Gradients("sqrt", (0.1, 0.0), {"exact": (1e-7, 2e-7)})
        >>> Gradients.from_dict(found.to_dict()) == found
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
        return dict(packed(vars(self)))

    @classmethod
    def from_dict(cls, values: Any) -> Gradients:
        """The reverse of :meth:`to_dict`.

        Raises:
            ValueError: a value is missing or of another kind.
        """
        found = cls(**_GRADIENTS(values, "gradients"))
        if any(len(errors) != len(found.gaps) for errors in found.at_gaps.values()):
            raise untrusted_json.RowError("gradients.at_gaps: expected an error for each gap")
        if set(found.layer or ()) - set(found.missing):
            raise untrusted_json.RowError("gradients.missing: expected every method of the layer")
        return found


_ERRORS = untrusted_json.number(0, infinite=True)
_GRADIENTS = untrusted_json.record(
    {
        "function": untrusted_json.one_of("sqrt", "inv_sqrt"),
        "gaps": untrusted_json.series(untrusted_json.number(0)),
        "at_gaps": untrusted_json.table(untrusted_json.series(_ERRORS)),
        "layer": untrusted_json.maybe(untrusted_json.table(_ERRORS)),
    },
    {
        "missing": untrusted_json.table(untrusted_json.whole()),
        "matrices": untrusted_json.whole(),
        "spectrum": untrusted_json.series(untrusted_json.number()),
        "run": untrusted_json.words,
        "size": untrusted_json.whole(),
        "of_features": untrusted_json.one_of(True, False),
    },
)


def function_of(config: Config) -> str:
    """The matrix function whose gradient the runs need; the inverse root if they need eigenvectors.

    Example:
        >>> function_of(Config(layer="batchnorm", pooling="covariance")), function_of(Config())
        ('sqrt', 'inv_sqrt')
    """
    return "sqrt" if config.operations[:1] == ("sqrt",) else "inv_sqrt"


def measure(function: str, methods: Sequence[str], trained: TrainedLayer | None = None, run: str = "") -> Gradients:
    """Errors at the gaps, and in a trained layer.

    Args:
        function: ``"inv_sqrt"`` or ``"sqrt"``.
        methods: by name.
        trained: the layer of a trained network; errors are those on the first eight of its matrices.
        run: its name.

    Example:
        >>> found = measure("inv_sqrt", ("exact", "svd"))
        >>> max(found.at_gaps["exact"]) < 1e-4, found.at_gaps["svd"][-1]
        (True, nan)
    """
    cases = [[_drawn(function, gap, seed) for seed in range(DRAWS)] for gap in GAPS]
    at_gaps = {name: tuple(_median(function, name, case) for case in cases) for name in methods}
    if trained is None:
        return Gradients(function, GAPS, at_gaps)
    layer, missing = _of_features(methods, trained) if trained.pooled else _of_matrices(function, methods, trained)
    spectrum = tuple(torch.linalg.eigvalsh(trained.matrices[0].double()).tolist())
    size, count = trained.matrices.shape[-1], len(trained.matrices)
    return Gradients(
        function, GAPS, at_gaps, layer, missing, count, spectrum, run, size=size, of_features=trained.pooled
    )  # fmt: skip


def _of_matrices(
    function: str, methods: Sequence[str], trained: TrainedLayer
) -> tuple[dict[str, float], dict[str, int]]:
    """Error of the matrix function's gradient, and on how many matrices there is none."""
    case = [_case(function, A, seed) for seed, A in enumerate(trained.matrices[:_MATRICES])]
    layer = {name: _median(function, name, case) for name in methods}
    return layer, {name: _lost(function, name, trained.matrices) for name in methods}


def _of_features(methods: Sequence[str], trained: TrainedLayer) -> tuple[dict[str, float], dict[str, int]]:
    """The same for a pooling layer, through which the gradient of the features is taken.

    Its covariances have zero eigenvalues, at which the root itself has no gradient; that of the features exists.
    """
    shape = (len(trained.matrices), *trained.matrices.shape[-2:])
    G = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    truth = trained.gradient("exact", G.double())[:_MATRICES]
    layer, missing = {}, {}
    for name in methods:
        found = trained.gradient(name, G)
        errors = [relative_error(a, b) for a, b in zip(found[:_MATRICES], truth, strict=True)]
        known = [error for error in errors if math.isfinite(error)]
        layer[name] = median(known) if 2 * len(known) > len(errors) else math.nan
        missing[name] = int((~torch.isfinite(found).flatten(1).all(1)).sum())
    return layer, missing


def _drawn(function: str, gap: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with that gap within pairs. A tie survives rounding only if the matrix is diagonal."""
    w = paired_spectrum(SIZE, CONDITION, gap)
    A = with_spectrum(w, dtype=torch.float32, seed=seed) if gap else torch.diag(torch.from_numpy(w)).float()
    return _case(function, A, seed)


def _case(function: str, A: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Matrix, cotangent and true gradient."""
    G = torch.randn(A.shape, generator=torch.Generator().manual_seed(seed))
    G = (G + G.mT) / 2
    if len(A) <= DIGITS_UP_TO:
        return A, G, Reference(A).gradient(function, G)
    return A, G, _gradient(function, "exact", A.double(), G.double())


def _median(function: str, method: str, cases: list[tuple[Tensor, Tensor, Tensor]]) -> float:
    """Over the cases with a gradient; NaN if half of them or more have none."""
    errors = [_error(function, method, *case) for case in cases]
    known = [error for error in errors if not math.isnan(error)]
    return median(known) if 2 * len(known) > len(errors) else math.nan


def _error(function: str, method: str, A: Tensor, G: Tensor, truth: Tensor) -> float:
    error = relative_error(_gradient(function, method, A, G), truth)
    return error if math.isfinite(error) else math.nan


def _lost(function: str, method: str, matrices: Tensor) -> int:
    """On how many matrices there is no finite gradient."""
    gradient = _gradient(function, method, matrices, torch.ones_like(matrices))
    return int((~torch.isfinite(gradient).all(-1).all(-1)).sum())


def _gradient(function: str, method: str, A: Tensor, G: Tensor) -> Tensor:
    """NaN where the method gives up on the matrices."""
    root = {"sqrt": matrix_sqrt, "inv_sqrt": matrix_inv_sqrt}[function]
    X = A.clone().requires_grad_()
    try:
        (gradient,) = torch.autograd.grad((root(X, method=method, rtol=0.0, clamp=True) * G).sum(), X)
    except SpectralError:
        return torch.full_like(A, math.nan)
    return (gradient + gradient.mT) / 2
