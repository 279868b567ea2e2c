"""Methods against one of them, run by run: what all share, weights at the start and order of the pictures, cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from .records import Result
from .results import label

BASELINE = "exact"


@dataclass(frozen=True)
class Pairs:
    """The runs of a method beside those of the baseline with the same seed and group size.

    Attributes:
        label: the method, or ``batchnorm``, which has no groups and stands beside the baseline's mean over them.
        differences: test error less the baseline's, in points; pairs in which one of the runs failed are left out.
        done: runs that came to their end.
        runs: all of them.

    Example:
        >>> pairs = Pairs("svd-clip", (0.5, 1.5), 2, 2)
        >>> pairs.mean, pairs.standard_error
        (1.0, 0.5)
    """

    label: str
    differences: tuple[float, ...]
    done: int
    runs: int

    @property
    def mean(self) -> float:
        return fmean(self.differences) if self.differences else math.nan

    @property
    def standard_error(self) -> float:
        """Of the mean; NaN below two pairs."""
        count = len(self.differences)
        return stdev(self.differences) / count**0.5 if count > 1 else math.nan


def against(results: Sequence[Result], baseline: str = BASELINE) -> list[Pairs]:
    """Each method over all group sizes and seeds; empty if the baseline is not among them.

    Args:
        results: of one comparison.
        baseline: the label of a method.

    Example:
        >>> from spectralgrad.lab.config import Config
        >>> against([Result(Config(), "done"), Result(Config(method="svd"), "failed")])[1]
        Pairs(label='svd', differences=(), done=0, runs=1)
    """
    known = {
        (r.config.group_size, r.config.seed): r.final_error
        for r in results
        if label(r.config) == baseline and r.status == "done"
    }
    if not known:
        return []
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(label(result.config), []).append(result)
    return [_pairs(name, found, known) for name, found in groups.items()]


def _pairs(name: str, results: list[Result], known: dict[tuple[int | None, int], float]) -> Pairs:
    done = [result for result in results if result.status == "done"]
    differences = [r.final_error - other for r in done if not math.isnan(other := _partner(r, known))]
    return Pairs(name, tuple(differences), len(done), len(results))


def _partner(result: Result, known: dict[tuple[int | None, int], float]) -> float:
    size, seed = result.config.group_size, result.config.seed
    if label(result.config) != "batchnorm":
        return known.get((size, seed), math.nan)
    same = [error for (_, other), error in known.items() if other == seed]
    return fmean(same) if same else math.nan
