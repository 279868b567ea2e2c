"""When a result of a device agrees with the CPU's: within what rounding errors in the input, and on a CPU, do to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spectralgrad.errors import SpectralError

from .checks import Wrong

Results = tuple[Tensor, ...]
Way = Callable[[Tensor], Results]

FACTOR = 50  # by which an error may exceed the CPU's own, or the effect of a rounding error in the input
ROUNDINGS = 100  # of the largest entry, which are allowed in any case
_PERTURBED = 3


@dataclass(frozen=True)
class Answer:
    """What a call returned, or the error that it raised."""

    results: Results | None
    error: SpectralError | None = None


def answer(way: Way, A: Tensor) -> Answer:
    """Call a function; only errors of this library are answers."""
    try:
        return Answer(tuple(x.detach() for x in way(A)))
    except SpectralError as error:
        return Answer(None, error)


def rounding(dtype: torch.dtype) -> float:
    """The unit roundoff."""
    return torch.finfo(dtype).eps / 2


def perturbed(A: Tensor, unit: float, symmetric: bool) -> list[Tensor]:
    """Return copies of ``A`` with relative errors of this size, each entry relative to the largest of its matrix."""
    found = []
    for seed in range(_PERTURBED):
        generator = torch.Generator().manual_seed(seed)
        wide = torch.complex128 if A.dtype.is_complex else torch.float64
        noise = torch.randn(A.shape, generator=generator, dtype=wide)
        noise = (noise + noise.mH) / 2 if symmetric else noise
        found.append((A.to(wide) + unit * A.abs().amax().double() * noise).to(A.dtype))
    return found


def require(found: Answer, references: Sequence[Answer], dtype: torch.dtype, what: str, device: str = "cpu") -> None:
    """Compare an answer of the device with the CPU's for the same input, which comes first, and for perturbed ones.

    The last of the CPU's answers is for input of the same type as the device's.

    Raises:
        Wrong: it is further from the first than the others allow, another kind of error, on another device, or of
            another type.
    """
    errors = {type(reference.error) for reference in references if reference.error is not None}
    values = [reference.results for reference in references if reference.results is not None]
    if found.results is None:
        if type(found.error) not in errors:
            raise Wrong(f"{what}: {type(found.error).__name__} where the CPU returns a result: {found.error}")
        return
    if not values:
        raise Wrong(f"{what}: a result where the CPU raises {references[0].error}")
    own = references[-1].results
    for position, x in enumerate(found.results):
        part = "value" if position == 0 else "gradient"
        if x.device.type != device or (own is not None and x.dtype != own[position].dtype):
            raise Wrong(f"{what}: {part} of type {x.dtype} on {x.device}".replace("torch.", ""))
        _close(x, [value[position] for value in values], dtype, f"{what}: {part}")


def _close(x: Tensor, references: Sequence[Tensor], dtype: torch.dtype, what: str) -> None:
    reference = references[0]
    if x.shape != reference.shape:
        raise Wrong(f"{what} of shape {(*x.shape,)} instead of {(*reference.shape,)}")
    wide = torch.complex128 if reference.dtype.is_complex else torch.float64
    x, *values = (y.cpu().to(wide) for y in (x, *references))
    finite = values[0].isfinite()
    if not bool((x.isfinite() == finite).all()) and all(bool((y.isfinite() == finite).all()) for y in values):
        raise Wrong(f"{what} is {_shown(x)} instead of {_shown(values[0])}")
    x, *values = (torch.where(finite & y.isfinite(), y, 0) for y in (x, *values))
    spread = max((_largest(y - values[0]) for y in values[1:]), default=0.0)
    allowed = FACTOR * spread + ROUNDINGS * rounding(dtype) * _largest(values[0]) + torch.finfo(dtype).tiny
    error = _largest(x - values[0])
    if not error <= allowed:
        size = _largest(values[0])
        raise Wrong(f"{what} has error {error:.1e}, allowed are {allowed:.1e}; its largest entry is {size:.1e}")


def _largest(x: Tensor) -> float:
    return float(x.abs().amax()) if x.numel() else 0.0


def _shown(x: Tensor) -> str:
    bad = x[~x.isfinite()]
    return f"{complex(bad[0]) if x.is_complex() else float(bad[0])} somewhere" if len(bad) else "finite"
