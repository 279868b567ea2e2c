"""Which eigenvalues are tied: one rule for the text and the charts of the page."""

from __future__ import annotations

from collections.abc import Sequence

# Below these distances, relative to the eigenvalues and to the largest one, float32 cannot separate two eigenvalues.
_NEAR, _ROUNDING = 1e-5, 4 * 2.0**-23


def ties(spectrum: Sequence[float]) -> list[list[float]]:
    """Groups of two or more eigenvalues that float32 can hardly separate; the largest group first.

    Neighbors are tied if their distance is below 1e-5 of their size, or below the rounding error of eigenvalues: a few
    units in the last place of the largest one.

    Example:
        >>> ties((0.5, 2.0, 0.5, 0.01, 0.0100000001, 0.01))
        [[0.01, 0.01, 0.0100000001], [0.5, 0.5]]
        >>> ties((1.0, 1.01))
        []
    """
    groups: list[list[float]] = []
    rounding = _ROUNDING * max(map(abs, spectrum), default=0.0)
    for value in sorted(spectrum):
        if groups and value - groups[-1][-1] <= max(_NEAR * abs(value), rounding):
            groups[-1].append(value)
        else:
            groups.append([value])
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)


def describe_ties(spectrum: Sequence[float]) -> str:
    """A description of the ties of a spectrum; empty without a spectrum.

    Example:
        >>> describe_ties((0.01, 0.01, 0.01, 0.3)), describe_ties((1.0, 2.0)), describe_ties(())
        ('3 of 4 eigenvalues are tied at 0.01', '2 eigenvalues, none tied', '')
        >>> describe_ties((0.01, 0.01, 0.01, 0.3, 0.3))
        '5 of 5 eigenvalues are tied, 3 of them at 0.01'
        >>> describe_ties((-1e-3, 0.1))
        '2 eigenvalues, none tied; those that are not positive are at the left end'
    """
    if not spectrum:
        return ""
    count, groups = len(spectrum), ties(spectrum)
    text = f"{count} eigenvalues, none tied"
    if groups:
        tied, first = sum(map(len, groups)), groups[0]
        where = f", {len(first)} of them" if len(groups) > 1 else ""
        text = f"{tied} of {count} eigenvalues are tied{where} at {first[0]:.3g}"
    return text + ("; those that are not positive are at the left end" if min(spectrum) <= 0 else "")
