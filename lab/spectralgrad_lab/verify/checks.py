"""A check, its outcome, and a run of all checks in which none stops the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from .anonymous import anonymous
from .target import Target

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Skip(Exception):  # noqa: N818
    """A check that cannot be made on this device; the message says why."""


class Wrong(AssertionError):  # noqa: N818
    """What a check found instead of the expected result."""


@dataclass(frozen=True)
class Check:
    """A check by its group and name; ``run`` returns a note, or raises :class:`Skip`, :class:`Wrong` or anything."""

    group: str
    name: str
    run: Callable[[Target], str]


@dataclass(frozen=True)
class Outcome:
    """What became of a check: passed, failed or skipped, with a message, and the seconds that it took."""

    group: str
    name: str
    status: str
    message: str
    seconds: float


def outcomes(checks: Sequence[Check], target: Target) -> Iterator[Outcome]:
    """Run the checks one after another.

    Example:
        >>> def wrong(target):
        ...     raise Wrong("is 3 instead of 2")
        >>> [done] = outcomes([Check("sums", "1 + 1", wrong)], Target("cpu"))
        >>> done.status, done.message
        ('failed', 'is 3 instead of 2')
    """
    for check in checks:
        start = time.perf_counter()
        status, message = _outcome(check, target)
        yield Outcome(check.group, check.name, status, anonymous(message), round(time.perf_counter() - start, 3))


def _outcome(check: Check, target: Target) -> tuple[str, str]:
    try:
        with warnings.catch_warnings(), _convolutions_in_single_precision():
            warnings.simplefilter("ignore")
            return PASSED, check.run(target)
    except Skip as reason:
        return SKIPPED, str(reason)
    except Wrong as found:
        return FAILED, str(found)
    except Exception as problem:
        return FAILED, f"{type(problem).__name__}: {problem}"


def _convolutions_in_single_precision() -> AbstractContextManager[object]:
    """Context in which cuDNN does not use TF32, which it does by default: ten bits are not what is checked here."""
    now = torch.backends.cudnn
    return now.flags(enabled=now.enabled, benchmark=now.benchmark, deterministic=now.deterministic, allow_tf32=False)


def counts(done: Sequence[Outcome]) -> dict[str, int]:
    """How many checks passed, failed and were skipped."""
    return {status: sum(outcome.status == status for outcome in done) for status in (PASSED, FAILED, SKIPPED)}
