r"""The power of two that brings a function of eigenvalues, and its divided differences, to ordinary size.

For a power of exponent p, :math:`f(2^e\lambda)=2^{ep}f(\lambda)`; the logarithm gains :math:`e\log2`; and
:math:`\exp\lambda=2^k\exp(\lambda-k\log2)`. Other functions are not scaled.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..dispatch import function
from ..precision import exponent_of, exponent_range, ldexp, moderate, moderate_limit
from .domain import Spectrum
from .scalar_functions import EXP, Function

_FEW = 64  # eigenvalues up to which a look at the numbers is faster than operations on tensors


class Scaled(NamedTuple):
    """A function and a spectrum of ordinary size, and the exponents (*,) of the matrix and of the result.

    f at the given spectrum is :math:`2^{up}` times ``f`` at ``spectrum``, and so is its derivative with
    :math:`2^{up-down}`.
    """

    f: Function
    spectrum: Spectrum
    down: Tensor
    up: Tensor


def scaled(f: Function, spectrum: Spectrum) -> Scaled | None:
    """Return the scaled function and spectrum; None if no matrix needs scaling, or f cannot be scaled."""
    if f is not EXP and f.degree is None:
        return None
    if function.eager(spectrum.values):
        if _usual(f, spectrum.values):
            return None
    elif function.exporting() or not spectrum.values.shape[-1]:
        return None
    return _exponential(spectrum) if f is EXP else _power(f, spectrum)


def _usual(f: Function, w: Tensor) -> bool:
    """True if no matrix needs scaling; it reads values."""
    if not w.numel():
        return True
    if f is EXP:
        largest = max(w.flatten().tolist()) if w.numel() <= _FEW else w.amax().item()
        return largest < exponent_range(w.dtype) / 2 * math.log(2)
    p = f.degree
    if isinstance(p, Tensor):
        return function.eager(p) and moderate(w, float(p.detach().abs().amax()))
    return moderate(w, abs(p))  # type: ignore[arg-type]


def _power(f: Function, spectrum: Spectrum) -> Scaled:
    """A power is largest at the largest eigenvalue, or at the smallest of the range if p < 0: it becomes about one."""
    w, _, support = spectrum
    p = torch.as_tensor(f.degree, dtype=w.dtype, device=w.device).detach()
    size = w.detach().abs()
    least, most = torch.where(support, size, torch.inf).amin(-1), torch.where(support, size, 0).amax(-1)
    # The limit of `moderate`, to the bit: whether a matrix is scaled must not depend on its neighbours.
    if isinstance(f.degree, (int, float)):
        limit: float | Tensor = moderate_limit(w.dtype, abs(f.degree))
    else:
        limit = torch.exp2(exponent_range(w.dtype) / 2 / (p.abs() + 2))
    e = exponent_of(torch.where(p < 0, least, most))
    e = torch.where((least <= 1 / limit) | (most >= limit), e, 0)
    return Scaled(f.at(e), Spectrum(ldexp(w, -e.unsqueeze(-1)), *spectrum[1:]), e, e * p)


def _exponential(spectrum: Spectrum) -> Scaled:
    w, limit = spectrum.values, exponent_range(spectrum.values.dtype) / 2
    top = w.detach().amax(-1)
    k = torch.floor(top.clamp_max(8 * limit) / math.log(2))  # beyond, the result is infinite in any case
    k = torch.where((k > limit) & (top < torch.inf), k, 0)
    shift = torch.where(top < 8 * limit, k * math.log(2), torch.where(k > 0, top, 0))
    return Scaled(EXP, Spectrum(w - shift.unsqueeze(-1), *spectrum[1:]), 0 * k, k)
