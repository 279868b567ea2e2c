"""A pytest plugin that plays a processor nobody has: torch's elementary functions err in their last bit.

Vendors' logarithms, exponentials and powers differ by one unit in the last place, depending on the instruction set that
the library finds. ``pytest -p tests.last_bits`` replaces them by numpy's, moved to a neighbouring number: the next one
up or down (``LAST_BITS=up`` or ``down``), or one of the two that depends on the value only (``mixed``, the default).
What vendors agree on stays: results of 0, ±1 and ±∞, powers that are products or roots, and powers of two. (All reduce
the argument of exp2 by the nearest integer first; ``tests/test_any_scale.py`` holds the one in use to that.) A test or
an example that fails with this plugin depends on the processor.
"""

import os
import warnings

import numpy as np
import torch
from torch import Tensor

FUNCTIONS = ("log", "log2", "log10", "log1p", "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh")
INVERSES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
PRODUCTS_AND_ROOTS = (-2, -1, -0.5, 0, 0.5, 1, 2, 3)
DIRECTION = os.environ.get("LAST_BITS", "mixed")
_library: torch.library.Library | None = None  # the replacements last as long as this object
_MIXER = np.uint64(0x9E3779B97F4A7C15)


def moved(values: np.ndarray) -> np.ndarray:
    """Move each number to one of its neighbours."""
    if np.iscomplexobj(values):
        return moved(values.real) + 1j * moved(values.imag)
    bits = values.view(f"u{values.itemsize}").astype(np.uint64)
    up = DIRECTION == "up" if DIRECTION != "mixed" else (bits * _MIXER >> np.uint64(63)).astype(bool)
    agreed = ~np.isfinite(values) | np.isin(values, (0, 1, -1))
    return np.where(agreed, values, np.nextafter(values, np.where(up, np.inf, -np.inf).astype(values.dtype)))


def _array(x: Tensor | float) -> np.ndarray:
    """Return the numbers in double precision."""
    if not isinstance(x, Tensor):
        return np.asarray(x)
    x = x.detach().resolve_conj().resolve_neg()
    return x.to(torch.complex128 if x.is_complex() else torch.float64).numpy()


def _computed(function: np.ufunc, *arguments: Tensor | float) -> Tensor:
    dtype = torch.result_type(*arguments) if len(arguments) == 2 else arguments[0].dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    with np.errstate(all="ignore"):
        exact = torch.from_numpy(np.array(function(*map(_array, arguments)))).to(dtype)
    if dtype in (torch.float16, torch.bfloat16, torch.complex32):
        return exact  # computed in float32 and rounded, on every processor
    values = exact.numpy()
    if function is np.exp2:
        return torch.from_numpy(np.where(np.frexp(values)[0] == 0.5, values, moved(values)))
    return torch.from_numpy(moved(values))


def _function(function: np.ufunc):
    return lambda *arguments: _computed(function, *arguments)


def _power(base: Tensor | float, exponent: Tensor | float) -> Tensor:
    if not isinstance(exponent, Tensor) and exponent in PRODUCTS_AND_ROOTS:
        powers = {-2: lambda x: 1 / (x * x), -1: lambda x: 1 / x, -0.5: lambda x: 1 / x.sqrt(), 0: torch.ones_like}
        powers |= {0.5: torch.sqrt, 1: torch.clone, 2: lambda x: x * x, 3: lambda x: x * x * x}
        return powers[exponent](base)
    return _computed(np.power, base, exponent)


def pytest_configure(config):
    """Replace torch's functions for the rest of the process."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    names = {name: name for name in FUNCTIONS} | INVERSES
    overloads = {name: _function(getattr(np, function)) for name, function in names.items()}
    overloads |= {f"pow.{kind}": _power for kind in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced is what this file is for
        for name, replacement in overloads.items():
            _library.impl(name, replacement, "CPU")
