"""What to change in the source, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...autograd.existence import REMEDIES

if TYPE_CHECKING:
    from .findings import Finding

_NORMS = "sg.nuclear_norm(M) or sg.spectral_norm(M)"
_OURS = {
    "torch.linalg.eigh": "sg.eigh(A)",
    "torch.linalg.svd": "sg.svd(M)",
    "torch.svd": "sg.svd(M)",
    "Tensor.svd": "sg.svd(M)",
    "torch.linalg.matrix_norm": _NORMS,
    "torch.linalg.norm": _NORMS,
    "torch.norm": _NORMS,
    "Tensor.norm": _NORMS,
}


def advice(finding: Finding) -> list[str]:
    """Return what to do about a finding, the best advice first; empty if nothing is to be done."""
    verdict = finding.verdict
    if verdict == "fine":
        return _precaution(finding)
    if verdict == "error":
        return _after_failure(finding)
    if verdict == "arrived non-finite" and finding.cause:
        return [f"NaN or Inf probably comes from the gradient of {finding.cause}; see there."]
    lines = [
        f"{function.text} is composed here; write {finding.instead(function)}, whose gradient has no gaps."
        + (f" {caution}" if (caution := finding.caution(function)) else "")
        for function in finding.composed
    ]
    special = {
        "arrived non-finite": _arrived,
        "noisy": _noisy,
        "non-finite": _nonfinite,
    }
    if verdict in REMEDIES:
        return [*lines, *_remedy(finding)]
    return [*lines, *special[verdict](finding)]


def _precaution(finding: Finding) -> list[str]:
    """For a place that is fine: a function composed by hand will not be at the next tie."""
    return [
        f"No tie so far, but {x.text} is composed here; {finding.instead(x)} has no gap problem."
        for x in finding.composed
        if x.scaled and not finding.ties
    ]


def _after_failure(finding: Finding) -> list[str]:
    if finding.bad_input and finding.cause:
        return [f"Its input contains NaN or Inf, probably from the gradient of {finding.cause}."]
    if finding.bad_input:
        return ["Its input contains NaN or Inf: look for an overflow or a division by zero before this call."]
    if finding.operation.ours:
        return ["The message says what was expected."]
    ours = _OURS.get(finding.operation.name)
    return [f"{ours} tries other solvers where one fails."] if ours else []


def _nonfinite(finding: Finding) -> list[str]:
    ours = _OURS.get(finding.operation.name)
    if not finding.place.line:
        return ["If it is in TorchScript, set the environment variable PYTORCH_JIT=0: its lines are then examined too."]
    if ours is None:
        return ["The matrix is singular to working precision there; use a pseudo-inverse, or add a multiple of I."]
    return [
        f"{_otherwise(finding)}{ours} has a finite gradient; in code that you cannot edit: with sg.override_linalg()."
    ]


def _arrived(finding: Finding) -> list[str]:
    if 0 <= finding.rank < finding.size and finding.composed:
        return ["The matrix is singular: the derivative of a root, logarithm or inverse is infinite at eigenvalue 0."]
    if 0 <= finding.rank < finding.size:
        return [
            "The matrix is singular: look for a root, logarithm or division of its zero eigenvalues after this call."
        ]
    return ["Look at what the loss computes after this call, for example with torch.autograd.detect_anomaly()."]


def _remedy(finding: Finding) -> list[str]:
    if finding.verdict == "lost" and finding.composed:
        return []
    return [f"{_otherwise(finding)}{REMEDIES[finding.verdict]}"]


def _noisy(finding: Finding) -> list[str]:
    if finding.composed:
        return []
    return ["Compute in float64, let the loss depend on projectors or matrix functions, or separate the eigenvalues."]


def _otherwise(finding: Finding) -> str:
    return "Otherwise: " if finding.composed else ""
