"""Which eigenvalues are tied: one rule for what the page says and what it paints."""

from __future__ import annotations

from collections.abc import Sequence

_NEAR = 1e-5  # relative distance at which float32 no longer tells two eigenvalues apart with any certainty


def ties(spectrum: Sequence[float]) -> list[list[float]]:
    """Groups of two or more neighbours, each closer to the next than 1e-5 of its size; the largest group first.

    Example:
        >>> ties((0.5, 2.0, 0.5, 0.01, 0.0100000001, 0.01))
        [[0.01, 0.01, 0.0100000001], [0.5, 0.5]]
        >>> ties((1.0, 1.01))
        []
    """
    groups: list[list[float]] = []
    for value in sorted(spectrum):
        if groups and value - groups[-1][-1] <= _NEAR * abs(value):
            groups[-1].append(value)
        else:
            groups.append([value])
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)


def said(spectrum: Sequence[float]) -> str:
    """The ties of a spectrum in words; empty without a spectrum.

    Example:
        >>> said((0.01, 0.01, 0.01, 0.3)), said((1.0, 2.0)), said(())
        ('3 of 4 eigenvalues are tied at 0.01', '2 eigenvalues, none tied', '')
        >>> said((0.01, 0.01, 0.01, 0.3, 0.3))
        '5 of 5 eigenvalues are tied, 3 of them at 0.01'
        >>> said((-1e-9, 0.1))
        '2 eigenvalues, none tied; those not above 0 stand at the left end'
    """
    if not spectrum:
        return ""
    count, groups = len(spectrum), ties(spectrum)
    text = f"{count} eigenvalues, none tied"
    if groups:
        tied, first = sum(map(len, groups)), groups[0]
        where = f", {len(first)} of them" if len(groups) > 1 else ""
        text = f"{tied} of {count} eigenvalues are tied{where} at {first[0]:.3g}"
    return text + ("; those not above 0 stand at the left end" if min(spectrum) <= 0 else "")
