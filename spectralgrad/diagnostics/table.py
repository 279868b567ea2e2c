"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Sequence


def render(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a line under its header; the first column is left-aligned, the others right-aligned.

    Example:
        >>> print(render(["case", "error"], [["a", "1e-3"], ["bb", "0.2"]]))
        case  error
        ────  ─────
        a      1e-3
        bb      0.2
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [_line(header, widths), "  ".join("─" * width for width in widths)]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = row
    cells = [f"{first:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


def number(x: float) -> str:
    """A number rounded to a few characters.

    Example:
        >>> [number(x) for x in (0.0, 1e-13, 0.1934, 53.0, float("nan"), float("inf"))]
        ['0', '1e-13', '0.19', '53', 'NaN', 'inf']
    """
    if x != x:
        return "NaN"
    if x in (float("inf"), float("-inf")):
        return "inf" if x > 0 else "-inf"
    if x == 0:
        return "0"
    if 0.01 <= abs(x) < 1:
        return f"{x:.2f}"
    if 1 <= abs(x) < 1000:
        return f"{x:.3g}"
    mantissa, exponent = f"{x:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"
