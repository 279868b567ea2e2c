"""The verdicts on a claim."""

from __future__ import annotations

AGREES = "agrees"
ROUNDING = "agrees up to rounding"
DISAGREES = "does not agree"
AMBIGUOUS = "ambiguous"
NOT_COMPARABLE = "not comparable at this size"
VERDICTS = (AGREES, ROUNDING, DISAGREES, AMBIGUOUS, NOT_COMPARABLE)

SYMBOLS = {AGREES: "✓", ROUNDING: "≈", DISAGREES: "✗", AMBIGUOUS: "?", NOT_COMPARABLE: "○"}
"""A sign for each verdict, readable without color."""

MEANINGS = {
    AGREES: "every computed value satisfies what the statement says",
    ROUNDING: "a value differs from a printed number by at most one unit of its last digit",
    DISAGREES: "a value contradicts the statement as printed",
    AMBIGUOUS: "the statement can be read in several ways, or leaves out what decides it; the reason says which",
    NOT_COMPARABLE: "the paper's setting needs more time, data or hardware; a small version ran, which does not decide",
}
"""What each verdict means, in a phrase."""


def marked(verdict: str) -> str:
    """A verdict with its sign; a dash if there is none.

    Example:
        >>> marked("agrees"), marked("")
        ('✓ agrees', '–')
    """
    return f"{SYMBOLS[verdict]} {verdict}" if verdict else "–"
