"""Times on the device beside the obvious composition in torch, once values and gradients have been compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.testing import with_spectrum

from ..bench.studies.calls import CALLS, Call, difference
from ..bench.studies.layers import composition
from ..bench.timing import race
from .checks import Check, Skip, Wrong
from .target import Target

_CALLS = ("eigh", "svd", "matrix_sqrt", "matrix_inv_sqrt", "matrix_log", "matrix_exp", "polar")  # which take batches
_SHAPES = ((4096, 3), (512, 8), (64, 32), (4, 128))
_QUICK = ((512, 3), (64, 8))
_LAYER = (32, 64, 14, 14)
_TOGETHER = 5  # calls that are queued before the device is waited for


@dataclass(frozen=True)
class Time:
    """Microseconds of a call on the device, forward alone and with the backward pass, here and composed in torch."""

    name: str
    shape: str
    ours: tuple[float, ...]
    torch: tuple[float, ...]

    @property
    def ratios(self) -> list[str]:
        """Torch's times over ours."""
        return [f"{theirs / ours:.2f}" for ours, theirs in zip(self.ours, self.torch, strict=True)]


def checks(quick: bool, times: list[Time]) -> Iterator[Check]:
    """Measurements; each adds its times to the list."""
    for batch, d in _QUICK if quick else _SHAPES:
        for call in CALLS:
            if call.name in _CALLS:
                made = partial(_matrices, batch, d)
                yield _check(f"{batch}×{d}×{d}", partial(_given, call), made, quick, times, call.name)
    yield _check(
        "×".join(map(str, _LAYER)), _layer, lambda: torch.randn(_LAYER), quick, times, "DecorrelatedBatchNorm2d"
    )


def _given(call: Call, target: Target) -> Call:
    return call


def _check(
    shape: str,
    call: Callable[[Target], Call],
    tensor: Callable[[], Tensor],
    quick: bool,
    times: list[Time],
    name: str,
) -> Check:
    def run(target: Target) -> str:
        found = _measured(call(target), tensor(), shape, target, 0.1 if quick else 0.4)
        times.append(found)
        return f"torch's time over ours: {', '.join(found.ratios)}"

    return Check("speed", f"{name}, {shape}", run)


def _matrices(batch: int, d: int) -> Tensor:
    """Positive definite matrices with distinct eigenvalues, eight of them different."""
    few = [with_spectrum([0.5 + 2.5 * k / (d - 1) for k in range(d)], seed=seed) for seed in range(min(batch, 8))]
    return torch.stack(few).repeat(-(-batch // len(few)), 1, 1)[:batch]


def _layer(target: Target) -> Call:
    layer = sg.nn.DecorrelatedBatchNorm2d(_LAYER[1], affine=False).to(target.device)
    ones, zeros = (x.to(target.device) for x in (torch.ones(_LAYER[1]), torch.zeros(_LAYER[1])))
    return Call("DecorrelatedBatchNorm2d", layer, lambda X: composition(X, ones.to(X), zeros.to(X)))


def _measured(call: Call, A: Tensor, shape: str, target: Target, seconds: float) -> Time:
    wide = target.put(A.to(target.wide))
    try:
        call.theirs(wide)
    except NotImplementedError as missing:
        raise Skip("torch's composition does not run on this device") from missing
    _require_equal(call, wide)
    single = target.put(A.float())
    times = [_times(call, single, backward, target, seconds) for backward in (False, True)]
    ours, theirs = (tuple(round(1e6 * t[who], 1) for t in times) for who in ("ours", "theirs"))
    return Time(call.name, shape, ours, theirs)


def _require_equal(call: Call, A: Tensor) -> None:
    limit = 1e-7 if A.dtype == torch.float64 else 1e-2
    apart = _apart(call, A)
    if not apart < limit:
        raise Wrong(f"differs from the composition in torch by {apart:.1g}")


def _apart(call: Call, A: Tensor) -> float:
    if call.name in _CALLS:
        return difference(call, A[:8])
    found, expected = (f(A).detach() for f in (call.ours, call.theirs))  # a module: its input is no matrix
    return float((found - expected).norm() / expected.norm())


def _times(call: Call, A: Tensor, backward: bool, target: Target, seconds: float) -> dict[str, float]:
    """Seconds of a call; the device is waited for after several of them."""

    def queued(f: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        leaf = A.clone().requires_grad_(backward)

        def run() -> None:
            for _ in range(_TOGETHER):
                found = f(leaf)
                if backward:
                    torch.autograd.grad(found, leaf, torch.ones_like(found))
            target.synchronize()

        return run

    counts = (torch.get_num_threads(),)
    both = {who: (queued(getattr(call, who)), counts) for who in ("ours", "theirs")}
    return {who: timing.seconds / _TOGETHER for who, timing in race(both, seconds).items()}
