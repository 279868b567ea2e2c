"""How far each method's gradient is from the true one: at prescribed gaps, and in the layer that was trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from .. import functions
from ..errors import SpectralError
from ..nn.spectral import SpectralModule
from ..testing import Reference, paired_spectrum, relative_error, with_spectrum
from .checkpoints import CheckpointError, load_weights
from .config import Config
from .data import load_for
from .loop import batches
from .parallel import Group
from .parts import build
from .records import packed, unpacked

GAPS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 0.0)  # relative distance within each pair; 0 is a tie
SIZE, CONDITION, DRAWS = 8, 1e2, 3
DIGITS_UP_TO = 16  # larger matrices have the exact gradient in float64 for a reference
_BATCHES, _MATRICES = 16, 8


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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(packed(vars(self)))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Gradients:
        """The reverse of :meth:`to_dict`."""
        at_gaps = {name: tuple(map(unpacked, errors)) for name, errors in values["at_gaps"].items()}
        layer = values["layer"] and {name: unpacked(error) for name, error in values["layer"].items()}
        lists = {name: tuple(values[name]) for name in ("gaps", "spectrum")}
        return cls(**{**values, **lists, "at_gaps": at_gaps, "layer": layer})


def function_of(config: Config) -> str:
    """The matrix function whose gradient the runs need; the inverse root if they need eigenvectors.

    Example:
        >>> function_of(Config(layer="batchnorm", pooling="covariance")), function_of(Config())
        ('sqrt', 'inv_sqrt')
    """
    return "sqrt" if config.operations[:1] == ("sqrt",) else "inv_sqrt"


def measure(function: str, methods: Sequence[str], matrices: Tensor | None = None, run: str = "") -> Gradients:
    """Errors at the gaps, and on the given matrices.

    Args:
        function: ``"inv_sqrt"`` or ``"sqrt"``.
        methods: by name.
        matrices: (n, d, d) of a trained layer, as it decomposes them; errors are those on the first eight.
        run: their name.

    Example:
        >>> found = measure("inv_sqrt", ("exact", "svd"))
        >>> max(found.at_gaps["exact"]) < 1e-4, found.at_gaps["svd"][-1]
        (True, nan)
    """
    cases = [[_drawn(function, gap, seed) for seed in range(DRAWS)] for gap in GAPS]
    at_gaps = {name: tuple(_median(function, name, case) for case in cases) for name in methods}
    if matrices is None:
        return Gradients(function, GAPS, at_gaps)
    case = [_case(function, A, seed) for seed, A in enumerate(matrices[:_MATRICES])]
    layer = {name: _median(function, name, case) for name in methods}
    missing = {name: _lost(function, name, matrices) for name in methods}
    spectrum = tuple(torch.linalg.eigvalsh(matrices[0].double()).tolist())
    return Gradients(
        function, GAPS, at_gaps, layer, missing, len(matrices), spectrum, run, size=matrices.shape[-1]
    )  # fmt: skip


def layer_matrices(folder: Path, config: Config) -> Tensor | None:
    """What the first spectral layer of a trained network decomposes in its next training steps, (n, d, d).

    Args:
        folder: of the run.
        config: of the run.

    Returns:
        the matrices of 16 batches; None if the folder has no checkpoint, or the network no such layer.

    Example:
        >>> layer_matrices(Path("nowhere"), Config()) is None
        True
    """
    try:
        weights = load_weights(folder)
    except (CheckpointError, OSError):
        return None
    data = load_for(config)
    train, _ = batches(config, data, Group())
    net = build(config, train.shape, len(data.classes), Group()).net.train()
    try:
        net.load_state_dict(weights)
    except RuntimeError:  # of another version of the network
        return None
    layer = next((module for module in net.modules() if isinstance(module, SpectralModule)), None)
    if layer is None:
        return None
    seen: list[Tensor] = []
    layer.register_spectral_hook(lambda _, matrices: _see(seen, matrices))
    for images, _ in islice(train.epoch(config.epochs), _BATCHES):
        with torch.no_grad(), suppress(_SeenError):
            net(images)
    return torch.cat(seen)


class _SeenError(Exception):
    """The layer has shown its matrices; the rest of the network need not be run."""


def _see(seen: list[Tensor], matrices: Tensor) -> None:
    seen.append(matrices.flatten(0, -3))
    raise _SeenError


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
    root = {"sqrt": functions.matrix_sqrt, "inv_sqrt": functions.matrix_inv_sqrt}[function]
    X = A.clone().requires_grad_()
    try:
        (gradient,) = torch.autograd.grad((root(X, method=method, rtol=0.0, clamp=True) * G).sum(), X)
    except SpectralError:
        return torch.full_like(A, math.nan)
    return (gradient + gradient.mT) / 2
