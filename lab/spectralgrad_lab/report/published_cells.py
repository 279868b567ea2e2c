"""Published results beside our own: which cell of a paper matches, and how our runs differ from the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spectralgrad.errors import SpectralError
from spectralgrad.nn import CovariancePooling, DecorrelatedBatchNorm2d, PCADenoising2d, SpectralModule
from spectralgrad.rules import Method

from ..comparison.results import Summary
from ..networks import in_form
from ..published.tables import METHOD, Cell, candidates
from ..training.config.method_names import method_text
from ..training.config.run_config import Config

_CHANNELS = 64  # after the first convolution, in the papers and in all networks here
_LAYERS: dict[str, type[SpectralModule]] = {
    "whitening": DecorrelatedBatchNorm2d,
    "denoising": PCADenoising2d,
    "pooling": CovariancePooling,
}


def published(config: Config) -> Cell | None:
    """The published cell for a run; None if no paper trained such a network.

    Dataset, network, layer, method, ε, group size, treatment and hybrid protocol must agree with the paper, and the
    method must have its published form. The length of training and the number of images may differ.

    Example:
        >>> from spectralgrad_lab import PRESETS
        >>> taylor = PRESETS["tpami-cifar10"].replaced(group_size=16)
        >>> print(published(taylor), "|", published(taylor.replaced(form="sound")))
        4.52 ± 0.14 (4.33) | None
        >>> print(published(PRESETS["iccv-resnet50"].replaced(hybrid="svd-pade")))
        22.60 / 6.44
    """
    run = coordinates(config)
    return next((cell for cell in candidates(run) if _same_method(config, run["layer"], cell)), None)


def coordinates(config: Config) -> dict[str, Any]:
    """What was trained, in the terms of :class:`~spectralgrad_lab.published.tables.Cell`, without the method.

    Example:
        >>> found = coordinates(Config(weights="ow", nog=True))
        >>> found["layer"], found["d"], found["eps"], found["treatment"]
        ('whitening', 64, 0.01, 'NOG+OW')
    """
    layer, pooled = config.layer, config.pooling == "covariance"
    if config.pooling != "average":
        pooling = "pooling" if pooled else config.pooling
        layer = pooling if layer == "batchnorm" else f"{layer} and {pooling}"
    weights = [] if config.weights == "plain" else [config.weights.upper()]
    share = isinstance(config.keep, float)
    first = config.hybrid is not None and config.text("method") != "newton-schulz"
    return {
        "dataset": config.dataset,
        "network": config.network,
        "layer": layer,
        "d": config.group_size or _CHANNELS,
        "eps": getattr(_layer(config, layer), "eps", config.eps),
        "treatment": "+".join([*["NOG"] * config.nog, *weights, *["OLR"] * config.olr]),
        "percentage": round(100 * config.keep, 9) if share else None,
        "vectors": None if share else config.keep,
        "hybrid": f"from {config.text('method')}" if first else config.hybrid is not None,
        "warmup": config.warmup_epochs,
        "precision": config.spectral_precision,
        "batch_size": config.batch_size,
        "whitening": config.whitening,
        "power": config.power if pooled else 0.5,
        "normalize": config.normalize and pooled,
    }


def _layer(config: Config, layer: str) -> SpectralModule | None:
    """A small layer of the same kind, which knows its default ε and the methods' defaults."""
    chosen = {} if config.eps is None else {"eps": config.eps}
    return _LAYERS[layer](1, **chosen) if layer in _LAYERS else None  # type: ignore[arg-type]


def method_in_form(config: Config) -> str:
    """The name of the method of a run, with the parameters that its published form sets.

    Example:
        >>> method_in_form(Config(method="svd-taylor")), method_in_form(Config(method="svd-taylor", form="published"))
        ('svd-taylor', 'svd-taylor:faithful=True:clamp=0.01')
    """
    module = _layer(config, coordinates(config)["layer"])
    if config.form == "sound" or module is None:
        return str(config.text("method"))
    return method_text(in_form(config.form, config.method, module))


def _same_method(config: Config, layer: str, cell: Cell) -> bool:
    """True if the run used the method of the cell, with its parameters and in its published form."""
    module = _layer(config, layer)
    if module is None:
        return True
    used = config.method if config.hybrid is None else config.hybrid
    name, *parameters = (cell.where.get(key) for key in METHOD)
    said = [f"{key}={value}" for key, value in zip(METHOD[1:], parameters, strict=True) if value is not None]
    try:
        theirs: Method = in_form("published", ":".join([str(name), *said]), module)
        return theirs == in_form(config.form, used, module)
    except SpectralError:  # a method that does not support the layer
        return False


def paper_cell(summary: Summary) -> Cell | None:
    """The published cell for the runs of a summary; None if there is none.

    Example:
        >>> from spectralgrad_lab import PRESETS, Result
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> every, demo = summarize([
        ...     Result(PRESETS["neurips-cifar10"], "done"), Result(Config(method="svd-taylor"), "done")
        ... ])
        >>> print(paper_cell(every), "|", paper_cell(demo))
        4.59 ± 0.09 (4.44) | None
    """
    return published(summary.results[0].config)


def comparable(summaries: Sequence[Summary]) -> bool:
    """True if a paper has a cell for any of these runs other than batchnorm."""
    return any(paper_cell(s) for s in summaries if s.label != "batchnorm")


def has_success_rates(summaries: Sequence[Summary]) -> bool:
    """True if a paper gives a success rate for any of these runs."""
    found = [paper_cell(s) for s in summaries if s.label != "batchnorm"]
    return any(cell is not None and not math.isnan(cell.success) for cell in found)


def sources(summaries: Sequence[Summary]) -> list[str]:
    """Where the cells are printed, what was trained there and for how long."""
    found = [cell for s in summaries if (cell := paper_cell(s))]
    return list(dict.fromkeys(f"{_trained(cell, ', ')}, {cell.table.source}" for cell in found))


def _trained(cell: Cell, joined: str) -> str:
    epochs = cell.table.epochs
    return cell.setting if epochs is None else f"{cell.setting}{joined}{epochs} epochs"


def success(cell: Cell | None) -> str:
    """The text for a success rate.

    Example:
        >>> success(None)
        '–'
    """
    return "–" if cell is None or math.isnan(cell.success) else f"{cell.success:g} %"


def notes(summaries: Sequence[Summary]) -> list[str]:
    """Notes on printed numbers that cannot be correct."""
    found = [(s.name, paper_cell(s)) for s in summaries]
    return [f"{name}: {cell.note}" for name, cell in found if cell and cell.note]


def differences_from_paper(summaries: Sequence[Summary]) -> str:
    """How runs with a published cell differ from the paper's in images and epochs; empty if they do not.

    Example:
        >>> from spectralgrad_lab import PRESETS, Result
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> short = PRESETS["tpami-cifar10"].replaced(train_size=2000, epochs=3)
        >>> differences_from_paper(summarize([Result(short, "done")]))
        'The paper trained ResNet-18 on CIFAR-10 for 350 epochs; these runs used 2000 images, 3 epochs.'
    """
    found = [(s.results[0].config, cell) for s in summaries if (cell := paper_cell(s))]
    other = [(config, cell) for config, cell in found if _shortened(config, cell)]
    if not other:
        return ""
    theirs = dict.fromkeys(_trained(cell, " for ") for _, cell in other)
    ours = dict.fromkeys(_length(config) for config, _ in other)
    return f"The paper trained {'; '.join(theirs)}; these runs used {'; '.join(ours)}."


def _shortened(config: Config, cell: Cell) -> bool:
    return config.train_size is not None or config.epochs != (cell.table.epochs or config.epochs)


def _length(config: Config) -> str:
    images = "all images" if config.train_size is None else f"{config.train_size} images"
    return f"{images}, {'1 epoch' if config.epochs == 1 else f'{config.epochs} epochs'}"
