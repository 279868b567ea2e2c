"""Loads the compiled kernel, unless it is switched off or fails its self-test."""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path

from . import selftest
from .build import FILE, X86, sets_of
from .functions import Kernel
from .missing import NOT_BUILT, mention

_ADVICE = "SPECTRALGRAD_BUILD=baseline pip install builds its most portable code; please report this."

# Read once, because a look-up in the environment costs as much as decomposing a small matrix.
switched_off: bool = os.environ.get("SPECTRALGRAD_NATIVE") == "0"


def kernel() -> Kernel | None:
    """Return the kernel, or None if it was not built, cannot be loaded, fails its self-test, or is disabled.

    To disable it, set SPECTRALGRAD_NATIVE=0 in the environment before the process starts.

    Example:
        >>> native = kernel()
        >>> native is None or native.isa in ("avx512", "avx2", "baseline")
        True
    """
    return None if switched_off else _load()[0]


def absence() -> str:
    """Return why there is no kernel."""
    return "switched off by SPECTRALGRAD_NATIVE=0" if switched_off else _load()[1]


def mention_absence() -> None:
    """Print, once and in a terminal only, that the kernel was not built and how to mend it."""
    path = Path(__file__).with_name(FILE)
    if not switched_off and not path.exists():
        mention(path.parent)


@cache
def _load() -> tuple[Kernel | None, str]:
    """Return the kernel and an empty string, or None and the reason."""
    path, why = Path(__file__).with_name(FILE), NOT_BUILT
    if not path.exists():
        return None, why
    try:
        native = Kernel(path)
    except (OSError, AttributeError) as problem:
        return None, f"cannot be used: {problem}"
    _check_environment(native.isa)
    wrong = selftest.problem(native)
    if wrong is None:
        return native, ""
    why = f"not used: its {native.isa} code fails its self-test ({wrong})"
    warnings.warn(f"native kernel {why}; torch.linalg is used instead. {_ADVICE}", RuntimeWarning, stacklevel=3)
    return None, why


def _check_environment(isa: str) -> None:
    """Warn if the kernel or its instruction set is not the one that the environment asks for."""
    wish, use = os.environ.get("SPECTRALGRAD_ISA", ""), os.environ.get("SPECTRALGRAD_NATIVE", "")
    said = []
    if wish not in ("", isa):
        why = f"expected one of {', '.join(X86)}"
        if wish in X86:
            built = wish in sets_of(Path(__file__).with_name(FILE))
            why = (
                "this machine does not have it" if built else "the kernel was built without it (SPECTRALGRAD_BUILD=all)"
            )
        said.append(f"SPECTRALGRAD_ISA={wish}: {why}; the kernel uses {isa}")
    if use not in ("", "0", "1"):
        said.append(f"SPECTRALGRAD_NATIVE={use}: expected 0 or 1; the kernel is used")
    for text in said:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
