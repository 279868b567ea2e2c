"""All contestants of all contests as text: every ratio, then every time and error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product

from spectralgrad.diagnostics.table import number, render

from .outcomes import Outcome

TITLES = {
    "eigh": "eigh",
    "eigvalsh": "eigenvalues only",
    "svd": "svd, rows × columns (batch)",
    "svd_grad": "U f(S) Vᴴ, rows × columns (batch), forward and backward",
    "inv_sqrt": "A^(-1/2), forward and backward",
    "covariance": "square root of a covariance, channels × positions (batch), forward and backward",
    "polar": "polar factor, rows × columns (batch)",
    "procrustes": "rotation between point sets, points × coordinates (batch), forward and backward",
    "rmsd": "distance of aligned points, points × coordinates (batch), forward and backward",
    "cca": "canonical correlations, samples × features (batch), forward and backward",
    "whitening": "whitening layer, channels × positions (batch), forward and backward",
    "generalised": "generalised eigenproblem, X f(w) Xᴴ, forward and backward",
    "frechet": "Fréchet distance, samples × features (batch), forward and backward",
    "fourth_root": "A^(-1/4) without gradient",
    "lstsq": "least squares, rows × columns (batch), forward and backward",
    "pinv": "pseudo-inverse, rows × columns (batch), forward and backward",
    "lyapunov": "AX + XA = C, forward and backward",
}
LEGEND = (
    "Rows: size d (batch B). a:b is b's time divided by a's, each the minimum of alternating runs; torch\n"
    "uses its best thread count. exact, taylor, ours, function: spectralgrad; function is singular_value_function,\n"
    "where ours is composed from the factors of svd. autograd: through torch.linalg.eigh.\n"
    "ns5, ns10: Newton–Schulz in plain torch. mtp, mpa: approximants of Song et al. (2022), methods of spectralgrad.\n"
    "eigvals: of the product of covariances, the usual FID code. sqrth, polar: new in torch 2.15. *: timed, but the\n"
    "error of one of the two exceeds rounding (see the second table). wrong: claims to be exact but is not, so not\n"
    "timed. failed: raised an error."
)
_SHORT = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}

Block = list[Outcome]
Cell = Callable[[Outcome], str]


def details(outcomes: Iterable[Outcome]) -> str:
    """The ratios, with one table per contest and spectrum, followed by the times and errors.

    Example:
        >>> from spectralgrad_lab.bench import Case, run
        >>> text = details(run([("eigh", Case(2, 3, torch.float32))], seconds=0.01))
        >>> text.splitlines()[0]
        'eigh, wishart: times faster'
    """
    blocks = _blocks(outcomes)
    ratios = [_table(block, "times faster", _ratio_columns) for block in blocks]
    times = [_table(block, "milliseconds (worst relative error)", _time_columns) for block in blocks]
    return "\n\n".join([*ratios, *times])


def _blocks(outcomes: Iterable[Outcome]) -> list[Block]:
    """Outcomes of one contest on one spectrum together."""
    blocks: dict[tuple[str, str], Block] = {}
    for outcome in outcomes:
        blocks.setdefault((outcome.contest, outcome.case.spectrum), []).append(outcome)
    return list(blocks.values())


def _table(block: Block, what: str, columns: Callable[[Block], dict[str, Cell]]) -> str:
    """One row per size and, for each dtype, the columns that ``columns`` returns."""
    precisions = list(dict.fromkeys(outcome.case.precision for outcome in block))
    rows: dict[str, dict[str, Outcome]] = {}
    for outcome in block:
        rows.setdefault(outcome.case.label, {})[outcome.case.precision] = outcome
    cells = list(product(precisions, columns(block).items()))
    header = ["", *(f"{_SHORT[precision]} {head}" for precision, (head, _) in cells)]
    lines = [
        [label, *(cell(row[precision]) if precision in row else "" for precision, (_, cell) in cells)]
        for label, row in rows.items()
    ]
    return f"{TITLES[block[0].contest]}, {block[0].case.spectrum}: {what}\n\n{render(header, lines)}"


def _ratio_columns(block: Block) -> dict[str, Cell]:
    ours, theirs = ([e.name for e in block[0].entries if e.ours is mine] for mine in (True, False))
    return {f"{a}:{b}": partial(_ratio, ours=a, rival=b) for a, b in product(ours, theirs)}


def _time_columns(block: Block) -> dict[str, Cell]:
    return {e.name: partial(_time, name=e.name) for e in block[0].entries}


def _ratio(outcome: Outcome, ours: str, rival: str) -> str:
    if ours not in outcome or rival not in outcome:
        return ""
    ratio = outcome.ratio(ours, rival)
    if ratio is not None:
        return number(ratio) + ("" if outcome[ours].right and outcome[rival].right else "*")
    untimed = next(entry for entry in (outcome[ours], outcome[rival]) if entry.timing is None)
    return "failed" if untimed.note else "wrong"


def _time(outcome: Outcome, name: str) -> str:
    if name not in outcome:
        return ""
    entry = outcome[name]
    if entry.timing is None:
        return "failed" if entry.note else f"wrong ({number(entry.error)})"
    return f"{entry.timing.seconds * 1e3:.3g} ({number(entry.error)})"
