"""Sentences that describe the results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..comparison.gradient_errors import GradientErrors
from ..comparison.results import Summary
from ..training.storage.records import Result
from . import ties
from .axes import short_number

_REMARKS = {
    "svd-pi": "svd-pi discards small eigenpairs in the forward pass too, so its gradient belongs to another function.",
    "newton-schulz": "newton-schulz stops after five steps, before it converges; its gradient belongs to the result.",
    "mtp": "mtp evaluates a polynomial of degree 10; its gradient belongs neither to the result nor to the root.",
    "mpa": "mpa evaluates a rational function; its gradient belongs neither to the result nor to the root.",
}


def headline(summaries: Sequence[Summary]) -> str:
    """Which methods failed, and which did not.

    Example:
        >>> from spectralgrad_lab.training.config.run_config import Config
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> runs = [Result(Config(method="svd"), "failed"), Result(Config(method="exact"), "done")]
        >>> headline(summarize(runs))
        'svd failed in its only run. The only run of exact finished.'
        >>> runs = [Result(Config(method="svd", group_size=4), "done"), Result(Config(method="svd"), "failed")]
        >>> headline(summarize(runs))
        'svd failed in 1 of 2 runs, at d = all.'
    """
    methods: dict[str, list[Summary]] = {}
    for s in summaries:
        methods.setdefault(s.method, []).append(s)
    broken = {name: found for name, found in methods.items() if any(s.failed for s in found)}
    sound = {name: found for name, found in methods.items() if name not in broken and any(s.done for s in found)}
    said = [f"{name} failed in {_failures(found)}" for name, found in broken.items()]
    sentences = [f"{_listed(said)}."] if said else []
    if sound:
        runs = sum(len(s.done) for found in sound.values() for s in found)
        who = next(iter(sound)) if len(sound) == 1 else f"the {'other ' if broken else ''}{len(sound)} methods"
        which = {1: "The only run", 2: "Both runs"}.get(runs, f"All {runs} runs")
        sentences.append(f"{which} of {who} finished.")
    return " ".join(sentences) or "No run has finished yet."


def _failures(found: Sequence[Summary]) -> str:
    """How many runs of a method failed, and at which group sizes if there are several."""
    count = _of(sum(len(s.failed) for s in found), sum(len(s.results) for s in found))
    if len(found) < 2 or all(s.failed for s in found):
        return count
    return f"{count}, at d = {_listed([str(s.group_size or 'all') for s in found if s.failed])}"


def details(summaries: Sequence[Summary], gradients: GradientErrors | None) -> list[str]:
    """One sentence each on the cause of failures, the gradients and the test errors, if known."""
    return [said for said in (_cause(summaries), _gradients(gradients), _errors(summaries)) if said]


def failure_note(result: Result) -> str:
    """What the eigenvalues of a failed run show."""
    return ties.describe_ties(result.failure.spectrum if result.failure else ())


def _cause(summaries: Sequence[Summary]) -> str:
    failures = [(r, r.failure) for s in summaries for r in s.failed if r.failure]
    if not failures:
        return ""
    first, failure = min(failures, key=lambda pair: pair[1].step)
    where = f" in layer {failure.layer}" if failure.layer else ""
    note = failure_note(first)
    return f"The first failure was at step {failure.step}{where}: {failure.reason}{f'; {note}' if note else ''}."


def _gradients(gradients: GradientErrors | None) -> str:
    found = (gradients.layer or {}) if gradients else {}
    lost = {name: count for name, count in gradients.missing.items() if count} if gradients else {}
    known = {name: error for name, error in found.items() if not math.isnan(error) and name not in lost}
    if not gradients or not known:
        return ""
    best, worst = min(known, key=lambda n: known[n]), max(known, key=lambda n: known[n])
    lowest = short_number(known[best])
    said = f"On the matrices of a trained layer, the gradient of {best} has a relative error of {lowest}"
    if worst != best:
        said += f", and {worst}'s has {short_number(known[worst])}"
    none = [f"{name} has no gradient on {count} of {gradients.matrices}" for name, count in lost.items()]
    return said + (f"; {_listed(none)}." if none else ".")


def remarks(gradients: GradientErrors | None) -> list[str]:
    """Remarks on methods whose gradient errors need an explanation.

    Example:
        >>> remarks(GradientErrors("sqrt", (), {"exact": ()}))
        []
    """
    return [said for name, said in _REMARKS.items() if gradients and name in gradients.at_gaps]


def _errors(summaries: Sequence[Summary]) -> str:
    known = [s for s in summaries if s.errors]
    if len(known) < 2:
        return ""
    best, worst = min(known, key=lambda s: s.mean), max(known, key=lambda s: s.mean)
    spread = max((max(s.errors) - min(s.errors) for s in known if len(s.errors) > 1), default=math.nan)
    said = f"Mean test errors range from {best.mean:.2f} % ({best.name}) to {worst.mean:.2f} % ({worst.name})"
    if math.isnan(spread):
        return f"{said}, with one run each."
    return f"{said}; seeds of the same method differ by up to {spread:.2f} points."


def spread(summaries: Sequence[Summary]) -> str:
    """Over how many runs errors are averaged, and how reliable the deviation is.

    Example:
        >>> from spectralgrad_lab.training.config.run_config import Config
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> spread(summarize([Result(Config(seed=seed), "done") for seed in (0, 1)]))
        'mean ± standard deviation over the 2 seeds; a deviation of two runs is not reliable'
    """
    counts = sorted({len(s.errors) for s in summaries if s.errors})
    if not counts or counts[-1] == 1:
        return "for a single run each"
    seeds = len({r.config.seed for s in summaries for r in s.results})
    over = f"the {seeds} seeds" if counts == [seeds] else f"the {_range(counts)} finished runs of each row"
    little = "; a deviation of two runs is not reliable" if 2 in counts else ""
    return f"mean ± standard deviation over {over}{little}"


def form(summaries: Sequence[Summary]) -> str:
    """Which form of the methods ran; empty if no run has a spectral layer.

    Example:
        >>> from spectralgrad_lab.training.config.run_config import Config
        >>> from spectralgrad_lab.comparison.results import summarize
        >>> form(summarize([Result(Config(form="published"), "done")]))
        'The methods ran in the published form.'
    """
    found = {r.config.form for s in summaries if s.label != "batchnorm" for r in s.results}
    if len(found) > 1:
        return "Methods ran in two forms, sound and published; their names say which."
    return "".join(f"The methods ran in the {name} form." for name in found)


def _range(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _of(count: int, total: int) -> str:
    if total == 1:
        return "its only run"
    everything = "both runs" if total == 2 else f"all {total} runs"
    return everything if count == total else f"{count} of {total} runs"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
