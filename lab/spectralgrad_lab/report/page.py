"""Write the report: fill the template with results, session and gradient errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectralgrad.errors import SpectralError
from spectralgrad.io.files import write_text

from ..comparison.gradient_errors import GradientErrors
from ..comparison.grid import sort_key
from ..comparison.paired_differences import BASELINE, against
from ..comparison.results import RESULTS, ResultsFile, Summary, summarize
from ..comparison.table import table_cells
from ..training.storage.records import Result
from . import figures, provenance, published_cells, second_table, sentences, template
from .gradient_cache import measured

PAGE = "report.html"
_TEMPLATE = "report/report.html.j2"


@dataclass(frozen=True)
class Page:
    """A report that was written: its file and its first sentences."""

    path: Path
    headline: str


def report(source: str | Path, out: str | Path | None = None) -> Page:
    """Write the report of a comparison: a single, self-contained HTML file.

    Args:
        source: the folder of a comparison, or its results.jsonl.
        out: the page to write (default: report.html beside the results).

    Returns:
        the path of the page and its first sentences.

    Raises:
        SpectralError: there are no results, or jinja2 is not installed.

    Example:
        >>> import tempfile
        >>> from spectralgrad_lab.training.config.run_config import Config
        >>> folder = Path(tempfile.mkdtemp())
        >>> ResultsFile(folder / RESULTS).append(Result(Config(method="svd"), "failed"))
        >>> report(folder).headline
        'svd failed in its only run.'
    """
    template.require()
    file = Path(source) / RESULTS if Path(source).is_dir() else Path(source)
    results = ResultsFile(file).read()
    if not results:
        raise SpectralError(f"{file}: no results; `spectralgrad compare` writes them")
    target = file.parent / PAGE if out is None else Path(out)
    context = contents(results, file.parent)
    write_text(target, template.fill(_TEMPLATE, **context))
    return Page(target, str(context["headline"]))


def contents(results: list[Result], folder: Path) -> dict[str, Any]:
    """The context of the template."""
    results = sorted(results, key=sort_key)
    summaries = summarize(results)
    gradients = measured(results, folder)
    session = provenance.session(folder)
    return {
        "headline": sentences.headline(summaries),
        "details": sentences.details(summaries, gradients),
        "rows": [_row(summary) for summary in summaries],
        "extra": second_table.contents(summaries),
        "pairs": _pairs(results),
        "baseline": BASELINE,
        "grid": _grid(summaries),
        "spread": sentences.spread(summaries),
        "form": sentences.form(summaries),
        "paper": _paper(summaries) if published_cells.comparable(summaries) else None,
        "settings": provenance.settings(results),
        "seeds": sorted({result.config.seed for result in results}),
        "session": session,
        "busy": provenance.load_warning(session["machine"]),
        "versions": provenance.versions(results),
        "charts": _charts(summaries, gradients),
        "gradients": gradients,
        "remarks": sentences.remarks(gradients),
        "failures": [_failure(r, s) for s in summaries for r in s.failed],
        "hours": sum(result.seconds for result in results) / 3600,
        "runs": len(results),
        "what": ", ".join(dict.fromkeys(f"{r.config.network} on {r.config.dataset}" for r in results)),
    }


def _row(summary: Summary) -> dict[str, Any]:
    cell = published_cells.paper_cell(summary)
    names = ("method", "d", "success", "error", "best", "step", "condition")
    return {
        **dict(zip(names, table_cells(summary), strict=True)),
        "failed": bool(summary.failed),
        "paper_success": published_cells.success(cell),
        "paper_error": "–" if cell is None else str(cell),
        "marked": bool(cell and cell.note),
    }


def _paper(summaries: list[Summary]) -> dict[str, Any]:
    """What the page says about the columns of the paper."""
    return {
        "sources": published_cells.sources(summaries),
        "differs": published_cells.differences_from_paper(summaries),
        "rated": published_cells.has_success_rates(summaries),
        "notes": published_cells.notes(summaries),
    }


def _pairs(results: list[Result]) -> list[dict[str, Any]]:
    """Rows of the table of paired differences; empty if no method has two pairs."""
    found = [pairs for pairs in against(results) if pairs.label != BASELINE]
    if all(len(pairs.differences) < 2 for pairs in found):
        return []
    return [
        {
            "method": pairs.label,
            "success": f"{pairs.done}/{pairs.runs}",
            "failed": pairs.done < pairs.runs,
            "pairs": len(pairs.differences),
            "difference": pairs.text(),
        }
        for pairs in found
    ]


def _grid(summaries: list[Summary]) -> dict[str, Any] | None:
    """Success rates with one row per method and one column per group size; None if there is only one group size."""
    spectral = [s for s in summaries if s.label != "batchnorm"]
    sizes = list(dict.fromkeys(s.group_size for s in sorted(spectral, key=lambda s: s.group_size or math.inf)))
    if len(sizes) < 2:
        return None
    rows: dict[str, dict[int | None, Summary]] = {}
    for s in spectral:
        rows.setdefault(s.method, {})[s.group_size] = s
    return {
        "sizes": [size or "all" for size in sizes],
        "rows": [{"method": m, "cells": [_survived(found.get(size)) for size in sizes]} for m, found in rows.items()],
    }


def _survived(summary: Summary | None) -> dict[str, Any]:
    return {
        "text": f"{len(summary.done)}/{len(summary.results)}" if summary else "–",
        "failed": bool(summary and summary.failed),
        "paper": published_cells.success(published_cells.paper_cell(summary) if summary else None),
    }


def _charts(summaries: list[Summary], gradients: GradientErrors | None) -> dict[str, Any]:
    return {
        "success": figures.success(summaries, published_cells.has_success_rates(summaries)),
        "errors": figures.errors(summaries) if any(s.errors for s in summaries) else None,
        "times": figures.times(summaries) if any(s.step_ms == s.step_ms for s in summaries) else None,
        "test_error": figures.curves(summaries, lambda e: e.test_error, "test error"),
        "train_loss": figures.curves(summaries, lambda e: e.train_loss, "training loss"),
        "condition": figures.curves(summaries, lambda e: e.condition, "condition number", log=True),
        "gaps": figures.gaps(gradients) if gradients else [],
        "layer": figures.layer_errors(gradients) if gradients and gradients.layer else None,
        "spectrum": figures.spectrum(gradients.spectrum, "eigenvalues of the trained layer")
        if gradients and gradients.spectrum
        else None,
    }


def _failure(result: Result, summary: Summary) -> dict[str, Any]:
    failure = result.failure
    values = failure.spectrum if failure else ()
    return {
        "name": f"{summary.name}, seed {result.config.seed}",
        "failure": failure,
        "note": sentences.failure_note(result),
        "chart": figures.spectrum(values, "eigenvalues when it failed") if any(v > 0 for v in values) else None,
    }
