"""Differences between methods and a baseline, paired by seed.

Runs with the same seed share initial weights and the order of the images, so the effect of both cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeAlias

from ..training.storage.records import Result
from .results import Summary, summarize

BASELINE = "exact"


@dataclass(frozen=True)
class PairedDifferences:
    """The runs of a method, paired with the baseline's runs that have the same seed and group size.

    Attributes:
        label: the method, or ``batchnorm``, which has no groups: it is paired with the baseline averaged over groups.
        differences: test error minus the baseline's, in percentage points; pairs with a failed run are left out.
        done: number of finished runs.
        runs: number of all runs.

    Example:
        >>> pairs = PairedDifferences("svd-clip", (0.5, 1.5), 2, 2)
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
        """Standard error of the mean; NaN for fewer than two pairs."""
        count = len(self.differences)
        return stdev(self.differences) / count**0.5 if count > 1 else math.nan

    def text(self, missing: str = "–") -> str:
        """Mean ± standard error, with a sign; ``missing`` if there is no pair.

        Example:
            >>> PairedDifferences("svd-clip", (0.5, 1.5), 2, 2).text(), PairedDifferences("svd", (), 0, 2).text()
            ('+1.00 ± 0.50', '–')
        """
        if not self.differences:
            return missing
        spread = "" if math.isnan(self.standard_error) else f" ± {self.standard_error:.2f}"
        return f"{self.mean:+.2f}{spread}".replace("-", "−")


def paired(one: Summary, other: Summary) -> PairedDifferences:
    """Compare two settings run by run, paired by seed.

    Example:
        >>> from spectralgrad_lab.training.config.run_config import Config
        >>> from spectralgrad_lab.training.storage.records import Epoch
        >>> def run(seed, error):
        ...     return Result(Config(seed=seed), "done", [Epoch(0, 0.1, 1.5, 50.0, 1.2, error, 2.0, 500.0, 20.0)])
        >>> ours, theirs = (Summary(name, None, "", tuple(map(run, (0, 1), e))) for name, e in
        ...                 (("ours", (40.0, 41.0)), ("theirs", (40.5, 42.5))))
        >>> paired(ours, theirs).mean, paired(ours, theirs).standard_error
        (-1.0, 0.5)
    """
    known: Known = {("", None, result.config.seed): result.final_error for result in other.done}
    return _pairs(one.label, [Summary(one.label, None, "", one.results)], known)


def against(results: Sequence[Result], baseline: str = BASELINE) -> list[PairedDifferences]:
    """Compare each method with a baseline, over all group sizes and seeds; empty if the baseline has no finished run.

    Args:
        results: of one comparison.
        baseline: label of the method to compare with.

    Example:
        >>> from spectralgrad_lab.training.config.run_config import Config
        >>> against([Result(Config(), "done"), Result(Config(method="svd"), "failed")])[1]
        PairedDifferences(label='svd', differences=(), done=0, runs=1)
    """
    found = summarize(results)
    known = {
        (s.extra, s.group_size, r.config.seed): r.final_error for s in found if s.label == baseline for r in s.done
    }
    if not known:
        return []
    groups: dict[str, list[Summary]] = {}
    for summary in found:
        groups.setdefault(summary.label, []).append(summary)
    return [_pairs(name, group, known) for name, group in groups.items()]


Known: TypeAlias = "dict[tuple[str, int | None, int], float]"


def _pairs(name: str, summaries: list[Summary], known: Known) -> PairedDifferences:
    done = [(summary, result) for summary in summaries for result in summary.done]
    partners = [(result.final_error, _partner(summary, result.config.seed, known)) for summary, result in done]
    differences = tuple(own - other for own, other in partners if not math.isnan(other))
    return PairedDifferences(name, differences, len(done), sum(len(summary.results) for summary in summaries))


def _partner(summary: Summary, seed: int, known: Known) -> float:
    """The error of the baseline with the same settings, group size and seed."""
    if summary.label != "batchnorm":
        return known.get((summary.extra, summary.group_size, seed), math.nan)
    same = [error for (extra, _, other), error in known.items() if other == seed and _matches(summary.extra, extra)]
    return fmean(same) if same else math.nan


def _matches(plain: str, spectral: str) -> bool:
    """True if a batchnorm run has the settings of a spectral run, apart from those that only spectral runs have."""
    return set(plain.split(", ")) - {""} <= set(spectral.split(", "))
