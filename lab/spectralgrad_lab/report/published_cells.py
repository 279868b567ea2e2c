"""The paper's cells beside the results: which of its runs are like ours, and in what ours differ from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..comparison.results import Summary
from ..papers.tables import Cell, Table, published, table
from ..training.config import Config

_CHANNELS = 64  # after the first convolution, in the paper and in all networks here


def beside(summary: Summary) -> Cell | None:
    """The paper's cell for runs that whiten as the paper's do, or have nothing spectral; None where it has none.

    Example:
        >>> from spectralgrad_lab import Result
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> every, pooled = summarize([
        ...     Result(Config(method="svd-pi"), "done"), Result(Config(method="svd", pooling="covariance"), "done")
        ... ])
        >>> print(beside(every), "|", beside(pooled))
        4.59 ± 0.09 (4.44) | None
    """
    config = summary.results[0].config
    size = summary.group_size
    if summary.label != "batchnorm":
        if not all(_whitens(result.config) for result in summary.results):
            return None
        if size is None and ":" not in config.network:
            size = _CHANNELS
    return published(summary.label, size, config.dataset, config.network, config.eps)


def _whitens(config: Config) -> bool:
    plain = config.pooling == "average" and config.weights == "plain" and not (config.nog or config.olr)
    return config.layer == "whitening" and config.whitening == "zca" and plain


def comparable(summaries: Sequence[Summary]) -> bool:
    """Whether the paper has any of these runs; that it has batch normalisation is not enough."""
    return any(beside(s) for s in summaries if s.label != "batchnorm")


def rated(summaries: Sequence[Summary]) -> bool:
    """Whether the paper gives a success rate for any of them."""
    found = [beside(s) for s in summaries if s.label != "batchnorm"]
    return any(cell is not None and not math.isnan(cell.success) for cell in found)


def tables(summaries: Sequence[Summary]) -> list[Table]:
    """The tables that the cells are from."""
    configs = [s.results[0].config for s in summaries if beside(s)]
    return list({found.setting: found for c in configs for found in [table(c.dataset, c.network)]}.values())


def success(cell: Cell | None) -> str:
    """A success rate in words.

    Example:
        >>> success(Cell(46.7)), success(Cell(math.nan, 21.5, 0.3, 21.0)), success(None)
        ('46.7 %', '–', '–')
    """
    return "–" if cell is None or math.isnan(cell.success) else f"{cell.success:g} %"


def notes(summaries: Sequence[Summary]) -> list[str]:
    """What cannot be right about the cells."""
    found = [(s.name, beside(s)) for s in summaries]
    return [f"{name}: {cell.note}" for name, cell in found if cell and cell.note]


def differs(summaries: Sequence[Summary]) -> str:
    """In what these runs differ from the paper's: network, images, epochs; empty if in nothing.

    Example:
        >>> from spectralgrad_lab import Result
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> differs(summarize([Result(Config(train_size=2000, epochs=3), "done")]))
        'The paper trained ResNet-18 on CIFAR-10 for 350 epochs. Here it is small on fashion, 2000 images, 3 epochs.'
    """
    ours = list(dict.fromkeys(said for s in summaries for r in s.results if (said := _other(r.config))))
    if not ours:
        return ""
    theirs = "; ".join(f"{found.setting} for {found.epochs} epochs" for found in tables(summaries) or [table()])
    return f"The paper trained {theirs}. Here it is {'; '.join(ours)}."


def _other(config: Config) -> str:
    """How a run was trained, if not as the paper's."""
    found = table(config.dataset, config.network)
    same = (config.dataset, config.network, config.epochs) == (found.dataset, found.network, found.epochs)
    if same and config.train_size is None:
        return ""
    size = "" if config.train_size is None else f", {config.train_size} images"
    epochs = "1 epoch" if config.epochs == 1 else f"{config.epochs} epochs"
    return f"{config.network} on {config.dataset}{size}, {epochs}"
