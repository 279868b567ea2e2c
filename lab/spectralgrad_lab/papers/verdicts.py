"""The verdicts on a statement, and the weight that a failure of it would have."""

from __future__ import annotations

AGREES = "agrees"
ROUNDING = "agrees up to rounding"
DISAGREES = "does not agree"
AMBIGUOUS = "ambiguous"
REPRODUCED = "direction reproduced"
NOT_SEEN = "not seen"
OPPOSITE = "opposite"
TOO_SMALL = "too small to tell"

TRENDS = (REPRODUCED, NOT_SEEN, OPPOSITE, TOO_SMALL)
"""Verdicts on experiments that were repeated at small size or on other hardware."""
NOT_RUN = "not run"
"""In place of a verdict: an experiment that is written, and waits for its runs."""
VERDICTS = (AGREES, ROUNDING, DISAGREES, AMBIGUOUS, *TRENDS)

SYMBOLS = {
    AGREES: "✓",
    ROUNDING: "≈",
    DISAGREES: "✗",
    AMBIGUOUS: "?",
    REPRODUCED: "●",
    NOT_SEEN: "○",
    OPPOSITE: "▼",
    TOO_SMALL: "…",
}
"""A sign for each verdict, readable without color."""

MEANINGS = {
    AGREES: "every computed value satisfies what the statement says",
    ROUNDING: "a value differs from a printed number by about one unit of its last digit",
    DISAGREES: "a value contradicts the statement as printed; its weight says what that affects",
    AMBIGUOUS: "the statement can be read in several ways, or leaves out what decides it; the reason says which",
    REPRODUCED: "a small experiment shows the paper's effect, in size or only in direction",
    NOT_SEEN: "a small experiment could have shown the effect, and did not",
    OPPOSITE: "a small experiment shows the contrary",
    TOO_SMALL: "an effect of the published size could not be seen here: too few or too short runs, or other hardware",
}
"""What each verdict means, in a phrase."""

RESULT, ANALYSIS, NUMBERS, SCOPE, MISPRINT = "result", "analysis", "numbers", "scope", "misprint"
WEIGHTS = {
    RESULT: "a method or a conclusion of the paper",
    ANALYSIS: "a theorem, a bound, a derivation or an explanation; the method stands without it",
    NUMBERS: "printed numbers, and what the text says about them",
    SCOPE: "true under a condition that the text leaves out, or in a sense that it does not say",
    MISPRINT: "a symbol, an index, a sign or a rounding in print, or perhaps in our copy; nothing depends on it",
}
"""What a statement is about, and so what its failure affects; the heaviest first."""

WEIGHT_SYMBOLS = {RESULT: "✗", ANALYSIS: "✗", NUMBERS: "≠", SCOPE: "!", MISPRINT: "✎"}
"""The sign of a statement that does not agree, by its weight."""


def marked(verdict: str, weight: str = "") -> str:
    """A verdict with its sign; a dash if there is none.

    Example:
        >>> marked("agrees"), marked("does not agree", "misprint"), marked("")
        ('✓ agrees', '✎ does not agree', '–')
    """
    sign = WEIGHT_SYMBOLS.get(weight, SYMBOLS[DISAGREES]) if verdict == DISAGREES else SYMBOLS.get(verdict)
    return f"{sign} {verdict}" if sign else verdict or "–"
