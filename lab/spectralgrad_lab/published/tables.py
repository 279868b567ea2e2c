"""The papers' training results, cell by cell: what was trained, and the numbers that are printed for it.

The files beside this one hold the tables as printed. Their sections ``training`` say what the runs of a table share,
and ``labels`` what the words in its rows and columns stand for. Numbers that cannot be right are kept, with a note.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .labeled_numbers import Coordinates, entries
from .printed import PAPERS, printed

METHOD = ("method", "degree", "iterations")
"""The coordinates of a cell that say which method was used."""
_NETWORKS = {"alexnet": "AlexNet", "resnet18": "ResNet-18", "resnet50": "ResNet-50", "resnet101": "ResNet-101"}
_DATASETS = {
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet", "imagenet": "ImageNet",
    "birds": "Birds", "dogs": "Dogs", "cars": "Cars",
}  # fmt: skip
_OF_ALL = ("dataset", "network", "layer", "batch_size")
# Coordinates that every run has. Where a table says nothing about them, they have these values.
_DEFAULTS = {"treatment": "", "hybrid": False, "whitening": "zca", "power": 0.5, "normalize": False}


@dataclass(frozen=True)
class Table:
    """A printed table of training results.

    Attributes:
        source: where it is printed.
        caption: as printed.
        epochs: how long its networks were trained; None if the paper does not say.
        runs: number of runs behind a cell; None if the paper does not say, or if it differs between cells.
        accuracy: True if its numbers are accuracies instead of errors.
    """

    source: str
    caption: str
    epochs: int | None = None
    runs: int | None = None
    accuracy: bool = False


@dataclass(frozen=True)
class Cell:
    """The numbers that a paper prints for one setting, in per cent; NaN where it prints none.

    Attributes:
        table: that it is from.
        where: what was trained: ``dataset``, ``network`` and ``layer`` as a :class:`~spectralgrad_lab.Config` writes
            them (``"pooling"`` for covariance pooling, otherwise the name of the pooling), the method, and what else
            the table tells apart: ``d``, ``eps``, ``treatment``, ``percentage`` or number of ``vectors`` kept,
            ``hybrid``, ``warmup``, ``precision``, ``batch_size``.
        success: share of runs that did not fail.
        mean: mean top-1 error (or accuracy) after the last epoch.
        sd: its standard deviation.
        best: the best one: over the runs, or over the epochs of a single run.
        top5: top-5 error (or accuracy) after the last epoch.
        best_top5: the best one.
        failures: how often the SVD solver failed; NaN where the table does not count it.
        note: why the cell cannot be correct.

    Example:
        >>> [cell] = [c for c in cells() if c.where.get("method") == "svd" and c.where.get("d") == 4]
        >>> print(cell, "|", cell.setting, "|", cell.note)
        4.54 ± 0.08 (4.59) | ResNet-18 on CIFAR-10 | the minimum is above the mean
    """

    table: Table
    where: Coordinates
    success: float = math.nan
    mean: float = math.nan
    sd: float = math.nan
    best: float = math.nan
    top5: float = math.nan
    best_top5: float = math.nan
    failures: float = math.nan
    note: str = ""

    @property
    def unknown(self) -> int:
        """How many of the numbers are not printed."""
        return sum(isinstance(value, float) and math.isnan(value) for value in vars(self).values())

    @property
    def setting(self) -> str:
        """Network and dataset as the papers write them."""
        network, dataset = self.where["network"], self.where["dataset"]
        return f"{_NETWORKS[network.removesuffix('-cifar')]} on {_DATASETS[dataset]}"

    def __str__(self) -> str:
        final, best = _top1_top5(self.mean, self.top5, self.sd), _top1_top5(self.best, self.best_top5)
        numbers = " ".join(word for word in (final, f"({best})" if best else "") if word)
        said = f"accuracy {numbers}" if numbers and self.table.accuracy else numbers
        failed = "" if math.isnan(self.failures) else f", {self.failures:g} failure{'s' if self.failures != 1 else ''}"
        return said + failed or "–"


def _top1_top5(top1: float, top5: float, sd: float = math.nan) -> str:
    """A top-1 number with its deviation, and a top-5 number, where they are known."""
    said = "" if math.isnan(top1) else f"{top1:.2f}" + ("" if math.isnan(sd) else f" ± {sd:.2f}")
    return said if math.isnan(top5) else f"{said} / {top5:.2f}"


@cache
def cells() -> tuple[Cell, ...]:
    """All training results that the papers print.

    Example:
        >>> len({cell.table.source for cell in cells()}), {cell.where["layer"] for cell in cells()} >= {"pooling"}
        (16, True)
    """
    return tuple(cell for paper in PAPERS for cell in _of_paper(printed(paper)))


def candidates(run: Coordinates) -> list[Cell]:
    """The cells that agree with a run in everything but the method.

    Those with the most coordinates come first, and among them those with the most numbers.

    Args:
        run: the coordinates of a run as in :class:`Cell`, and its ``whitening``, ``power`` and ``normalize``.

    Example:
        >>> run = {"dataset": "cifar100", "network": "resnet50-cifar", "layer": "batchnorm", **_DEFAULTS}
        >>> [str(cell) for cell in candidates(run)]
        ['21.62 ± 0.65 (20.79)']
    """
    found = [cell for cell in cells() if all(run.get(k) == v for k, v in {**_DEFAULTS, **_place(cell)}.items())]
    return sorted(found, key=lambda cell: (-len(cell.where), cell.unknown))


def _place(cell: Cell) -> dict[str, Any]:
    return {name: value for name, value in cell.where.items() if name not in METHOD}


def _of_paper(paper: Mapping[str, Any]) -> Iterator[Cell]:
    for name, training in paper["training"].items():
        labels = {**paper.get("labels", {}), **training.get("labels", {})}
        told = {key: training[key] for key in ("source", "epochs", "runs", "accuracy") if key in training}
        table = Table(caption=paper[name]["caption"], **told)
        whole = {"printed": paper[name], "row": training.get("row", [])}
        found: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}
        for where, value, number in entries(whole, labels, training["shared"]):
            found.setdefault(tuple(_relevant(where).items()), {})[value] = number
        for key, numbers in found.items():
            notes = [note["text"] for note in training.get("notes", []) if note["cell"].items() <= dict(key).items()]
            yield Cell(table, dict(key), **numbers, note="; ".join(notes))


def _relevant(where: dict[str, Any]) -> dict[str, Any]:
    """The coordinates in a fixed order. A network without a spectral layer has neither method nor ε nor groups."""
    plain = where["layer"] == "batchnorm"
    return {name: where[name] for name in sorted(where) if not plain or name in _OF_ALL}
