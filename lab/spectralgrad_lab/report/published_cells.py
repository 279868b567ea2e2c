"""Published results beside our own: which cell of a paper matches, and how our runs differ from the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..comparison.results import Summary
from ..published.tables import Cell, Table, published, table
from ..training.config import Config

_CHANNELS = 64  # after the first convolution, in the paper and in all networks here


def paper_cell(summary: Summary) -> Cell | None:
    """The cell of the paper for runs with the same layer, or without a spectral layer; None if it has none.

    Example:
        >>> from spectralgrad_lab import Result
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> every, pooled = summarize([
        ...     Result(Config(method="svd-pi"), "done"), Result(Config(method="svd", pooling="covariance"), "done")
        ... ])
        >>> print(paper_cell(every), "|", paper_cell(pooled))
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
    """True if the paper has a cell for any of these runs other than batchnorm."""
    return any(paper_cell(s) for s in summaries if s.label != "batchnorm")


def has_success_rates(summaries: Sequence[Summary]) -> bool:
    """True if the paper gives a success rate for any of these runs."""
    found = [paper_cell(s) for s in summaries if s.label != "batchnorm"]
    return any(cell is not None and not math.isnan(cell.success) for cell in found)


def tables(summaries: Sequence[Summary]) -> list[Table]:
    """The tables of the paper that the cells come from."""
    configs = [s.results[0].config for s in summaries if paper_cell(s)]
    return list({found.setting: found for c in configs for found in [table(c.dataset, c.network)]}.values())


def success(cell: Cell | None) -> str:
    """The text for a success rate.

    Example:
        >>> success(Cell(46.7)), success(Cell(math.nan, 21.5, 0.3, 21.0)), success(None)
        ('46.7 %', '–', '–')
    """
    return "–" if cell is None or math.isnan(cell.success) else f"{cell.success:g} %"


def notes(summaries: Sequence[Summary]) -> list[str]:
    """Notes on printed numbers that cannot be correct."""
    found = [(s.name, paper_cell(s)) for s in summaries]
    return [f"{name}: {cell.note}" for name, cell in found if cell and cell.note]


def differences_from_paper(summaries: Sequence[Summary]) -> str:
    """How these runs differ from the paper's in network, images and epochs; empty if they do not.

    Example:
        >>> from spectralgrad_lab import Result
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> differences_from_paper(summarize([Result(Config(train_size=2000, epochs=3), "done")]))
        'The paper trained ResNet-18 on CIFAR-10 for 350 epochs; these runs used small on fashion, 2000 images, 3
        epochs.'
    """
    ours = list(dict.fromkeys(said for s in summaries for r in s.results if (said := _other(r.config))))
    if not ours:
        return ""
    theirs = "; ".join(f"{found.setting} for {found.epochs} epochs" for found in tables(summaries) or [table()])
    return f"The paper trained {theirs}; these runs used {'; '.join(ours)}."


def _other(config: Config) -> str:
    """How a run was trained, if differently from the paper."""
    found = table(config.dataset, config.network)
    same = (config.dataset, config.network, config.epochs) == (found.dataset, found.network, found.epochs)
    if same and config.train_size is None:
        return ""
    size = "" if config.train_size is None else f", {config.train_size} images"
    epochs = "1 epoch" if config.epochs == 1 else f"{config.epochs} epochs"
    return f"{config.network} on {config.dataset}{size}, {epochs}"
