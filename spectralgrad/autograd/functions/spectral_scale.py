r"""The power of two that brings a function of eigenvalues, and its divided differences, to ordinary size.

For a power of exponent p, :math:`f(2^e\lambda)=2^{ep}f(\lambda)`; the logarithm gains :math:`e\log2`; and
:math:`\exp\lambda=2^k\exp(\lambda-k\log2)`. Other functions are not scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...dispatch import function
from ...native.thresholds import table
from ...precision import exponent_of, exponent_range, ldexp, moderate, moderate_limit, number
from .. import usual
from .divided_differences import kept
from .domain import Spectrum
from .infinite_values import added, composed_with_infinite
from .rescaling import rescaled
from .scalar_functions import EXP, Function, real_power

# log 2 as a sum. The first term has 15 bits, so that its multiples are exact, and so is their difference from λ.
_HIGH, _LOW = 0.693145751953125, 1.42860682030941723212e-6


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
    w = spectrum.values
    if function.eager(w):
        if _usual(f, w):
            return None
    elif function.exporting() or not w.shape[-1] or _assumed(f, w):
        return None
    return _exponential(spectrum) if f is EXP else _power(f, spectrum)


def lost(f: Function, spectrum: Spectrum, found: Scaled) -> Tensor | None:
    """Return what is missing (*, d) in the results of ``found``, for each eigenvalue; None if nothing is.

    If the largest value is beyond the range, or close to its end, others underflow beside it that are representable by
    themselves. Only eager calls are checked.
    """
    w, _, support = spectrum
    if not function.eager(w) or not bool((found.up > 0).any()):
        return None
    reached = kept(found.f.value, found.spectrum.values, support).detach()
    far = support & (reached.abs() < 2.0 ** -(exponent_range(w.dtype) // 2)) & (found.up > 0).unsqueeze(-1)
    if not bool(far.any()):
        return None
    missing = kept(f.value, w, far).detach() - ldexp(reached, found.up.unsqueeze(-1))
    return torch.where(far & ~missing.isnan(), missing, 0)  # ∞ − ∞: nothing is missing


def completed(near: Tensor, f: Function, spectrum: Spectrum, found: Scaled) -> Tensor:
    """Add the values that underflow beside the largest one. They change no entry that is infinite."""
    missing = lost(f, spectrum, found)
    if missing is None:
        return near
    return added(near, torch.where(near.detach().isinf(), 0, composed_with_infinite(spectrum.vectors, missing)))


def at_ordinary_size(
    call: Callable[[Tensor, Function], Tensor], A: Tensor, f: Function, p: float | Tensor | None, e: Tensor, up: Tensor
) -> Tensor:
    """Return ``call`` of matrices divided by 2ᵉ and of ``f``, times the power of two that undoes the scaling.

    Args:
        call: returns the function of matrices.
        A: matrices (*, d, d).
        f, up: the scaled function and the exponent (*,) of the result, as :meth:`Function.at` returns them.
        p: the degree; a tensor also determines the power of two, and receives its gradient.
        e: exponents (*,).
    """
    if not isinstance(p, Tensor):
        result: Tensor = rescaled(lambda A: call(A, f), (A,), (e,), (up,))
        return result

    def learned(A: Tensor, p: Tensor) -> Tensor:
        return call(A, real_power(p).at(e)[0])

    result = rescaled(learned, (A, p.expand(e.shape)), (e, 0 * e), (up,))
    return result


def _usual(f: Function, w: Tensor) -> bool:
    """True if no matrix needs scaling; it reads values."""
    if not w.numel():
        return True
    if f is EXP:
        largest = max(w.flatten().tolist()) if w.numel() <= table().few else w.amax().item()
        return largest < _largest_exponent(w)
    p = f.degree
    if isinstance(p, Tensor):
        return function.eager(p) and moderate(w, float(p.detach().abs().amax()))
    return moderate(w, abs(p))  # type: ignore[arg-type]


def _assumed(f: Function, w: Tensor) -> bool:
    """The same, assumed; not for a degree on the device."""
    if f is EXP:
        return usual.below(w, _largest_exponent(w))
    return not isinstance(f.degree, Tensor) and usual.moderate(w, abs(f.degree))  # type: ignore[arg-type]


def _largest_exponent(w: Tensor) -> float:
    return exponent_range(w.dtype) / 2 * math.log(2)


def _power(f: Function, spectrum: Spectrum) -> Scaled:
    """A power is largest at the largest eigenvalue, or at the smallest of the range if p < 0: it becomes about one."""
    w, _, support = spectrum
    p = number(f.degree, w).detach()  # type: ignore[arg-type]
    size = w.detach().abs()
    least, most = torch.where(support, size, torch.inf).amin(-1), torch.where(support, size, 0).amax(-1)
    # The limit of `moderate`, to the bit: whether a matrix is scaled must not depend on its neighbours.
    if isinstance(f.degree, (int, float)):
        limit: float | Tensor = moderate_limit(w.dtype, abs(f.degree))
    else:
        limit = torch.exp2(exponent_range(w.dtype) / 2 / (p.abs() + 2))
    e = torch.where((least <= 1 / limit) | (most >= limit), _common(exponent_of(least), exponent_of(most), p), 0)
    scaled_f, up = f.at(e)
    return Scaled(scaled_f, Spectrum(_within_range(w, e), spectrum.vectors, spectrum.support), e, up)


def _common(least: Tensor, most: Tensor, p: Tensor) -> Tensor:
    """The even exponent by which to divide eigenvalues between 2^least and 2^most.

    It belongs to the eigenvalue with the largest power, unless the smallest or the largest eigenvalue would leave the
    range of normal numbers. Then it moves within the limits of the power and its derivative.
    """
    reach = exponent_range(least.dtype) - 4
    room = 2 * torch.floor(reach / torch.where(p < 0, 1 - p, p.clamp_min(1)) / 2)
    growing = torch.maximum(torch.minimum(most, least + reach), most - room)
    falling = torch.minimum(torch.maximum(least, most - reach), least + room)
    return torch.where(p < 0, falling, growing)


def _within_range(w: Tensor, e: Tensor) -> Tensor:
    """Return eigenvalues divided by 2ᵉ; those that leave the range of normal numbers stop at its ends."""
    info, moved = torch.finfo(w.dtype), ldexp(w, -e.unsqueeze(-1))
    moved = torch.where((moved.abs() < info.tiny) & (w != 0), w.sign() * info.tiny, moved)
    return moved.clamp(-info.max, info.max)


def _exponential(spectrum: Spectrum) -> Scaled:
    w, limit = spectrum.values, exponent_range(spectrum.values.dtype) / 2
    top = w.detach().amax(-1)
    k = torch.floor(top.clamp_max(8 * limit) / math.log(2))  # beyond, the result is infinite in any case
    k = torch.where((k > limit) & (top < torch.inf), k, 0)
    multiple, shift = k.unsqueeze(-1), torch.where(k > 0, top, 0).unsqueeze(-1)
    within = (w - multiple * _HIGH) - multiple * _LOW
    reduced = torch.where(top.unsqueeze(-1) < 8 * limit, within, w - shift)
    return Scaled(EXP, Spectrum(reduced, spectrum.vectors, spectrum.support), 0 * k, k)
