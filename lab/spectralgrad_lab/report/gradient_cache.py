"""Gradient errors of the methods of a comparison: measured once and saved, since trained layers may be deleted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from spectralgrad.io.files import write_json
from spectralgrad.rules import methods as serve

from .. import untrusted_json
from ..comparison import gradient_errors as measuring
from ..comparison.gradient_errors import GradientErrors
from ..comparison.grid import job_for
from ..comparison.results import summarize
from ..comparison.trained_layer import trained_layer
from ..training.config.run_config import Config
from ..training.storage.records import Result
from .published_cells import method_in_form

GRADIENTS = "gradients.json"


def measured(results: Sequence[Result], folder: Path) -> GradientErrors | None:
    """Gradient errors of the compared methods; None if no run has a layer with a matrix root.

    Example:
        >>> from spectralgrad_lab import Config
        >>> measured([Result(Config(layer="batchnorm"), "done")], Path("nowhere")) is None
        True
    """
    spectral = [result for result in results if result.config.operations]
    if not spectral:
        return None
    function = measuring.function_of(spectral[0].config)
    serving = serve(function)
    named = [method_in_form(r.config) for r in spectral]
    methods = list(dict.fromkeys(name for name in named if name.partition(":")[0] in serving))
    if not methods:
        return None
    runs = {_name(r, spectral): r for r in spectral if r.status == "done" and function in r.config.operations}
    kept = _kept(folder / GRADIENTS)
    if kept and kept.function == function and list(kept.at_gaps) == methods and kept.run in runs:
        return kept
    found = _measured(runs, function, methods, folder)
    if found.layer is not None or kept is None or kept.layer is None:  # never overwrite what cannot be measured again
        with suppress(OSError):
            write_json(folder / GRADIENTS, found.to_dict())
    return found


def _kept(path: Path) -> GradientErrors | None:
    """The saved errors; None if the file is missing, invalid, or has other gaps."""
    try:
        found = GradientErrors.from_dict(untrusted_json.parse(path.read_bytes()))
    except (OSError, ValueError):
        return None
    return found if found.gaps == measuring.GAPS else None


def _measured(runs: dict[str, Result], function: str, methods: list[str], folder: Path) -> GradientErrors:
    """Measure with the layer of a run that has a checkpoint; runs of ``exact`` and with large groups are preferred."""
    for name, result in sorted(runs.items(), key=lambda item: _choice(item[1].config)):
        layer = trained_layer(job_for(result.config, folder).folder, result.config)
        if layer is not None:
            return measuring.measure(function, methods, layer, name)
    return measuring.measure(function, methods)


def _choice(config: Config) -> tuple[bool, float]:
    return config.method != "exact", -(config.group_size or math.inf)


def _name(result: Result, results: Sequence[Result]) -> str:
    name = next(s.name for s in summarize(results) if result in s.results)
    return f"{name}, seed {result.config.seed}"
