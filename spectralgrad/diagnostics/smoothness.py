"""The effective β-smoothness of a loss: how fast its gradient changes along a step (ICCV 2021, Figs 2 and 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from ..dispatch.arguments import check_count, check_range, checked
from ..errors import SpectralError

__all__ = ["effective_smoothness"]


@checked
def effective_smoothness(
    loss: Callable[[], Tensor],
    parameters: nn.Module | Iterable[Tensor],
    *,
    rate: float = 0.1,
    points: int = 4,
    module: nn.Module | None = None,
) -> float:
    r"""The effective β-smoothness of a loss at the current parameters, along its gradient.

    .. math:: \beta=\max_{\alpha}\frac{\lVert\nabla L(\theta)-\nabla L(\theta-\alpha g)\rVert}{\alpha\lVert g\rVert},
              \qquad g=\nabla L(\theta),\quad\alpha=\tfrac{1}{n}\,\mathrm{rate},\dots,\mathrm{rate}.

    A larger β means a less smooth loss. Afterwards parameters, buffers of the module, gradients and the state of the
    random number generators are as before. All evaluations use the same random numbers.

    Args:
        loss: function without arguments that computes the loss on one batch; evaluated ``points + 1`` times, with
            gradient.
        parameters: a module or its parameters.
        rate: the longest step, as a learning rate.
        points: n, the number of steps to try.
        module: the module whose buffers to restore, if ``parameters`` is not itself a module.

    Returns:
        β; 0 if the gradient is zero, infinite if a gradient is not finite.

    Raises:
        SpectralError: no parameter requires a gradient, or ``points`` or ``rate`` is not positive.

    Example:
        >>> x = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)
        >>> H = torch.tensor([2.0, 2.0], dtype=torch.float64)
        >>> round(effective_smoothness(lambda: (H * x * x).sum() / 2, [x]), 9)
        2.0

    Reference: Song, Sebe and Wang, ICCV 2021, Figs 2 and 4, after Santurkar et al., How Does Batch Normalization
    Help Optimization?, NeurIPS 2018.
    """
    if isinstance(parameters, nn.Module):
        module, parameters = parameters, parameters.parameters()
    check_count(points, "points", "effective_smoothness")
    check_range(rate, "rate", "effective_smoothness", 0, ends="()")
    listed = list(parameters)
    if not all(isinstance(p, Tensor) for p in listed):
        raise SpectralError("effective_smoothness: expected parameters to be a module or tensors")
    wanted = [p for p in listed if p.requires_grad]
    if not wanted:
        raise SpectralError("effective_smoothness: expected parameters that require a gradient, got none")
    kept = [(t, t.detach().clone()) for t in (*wanted, *(module.buffers() if module is not None else ()))]
    try:
        return _largest(loss, wanted, kept, [rate * (i + 1) / points for i in range(points)])
    finally:
        _restore(kept)


def _largest(
    loss: Callable[[], Tensor], wanted: list[Tensor], kept: list[tuple[Tensor, Tensor]], steps: Sequence[float]
) -> float:
    start = _gradient(loss, wanted)
    length = _length(start)
    if length == 0:
        return 0.0
    turns = []
    for step in steps:
        _restore(kept)
        with torch.no_grad():
            for p, g in zip(wanted, start, strict=True):
                p.sub_(g, alpha=step)
        there = _gradient(loss, wanted)
        turns.append(_length([a - b for a, b in zip(start, there, strict=True)]) / (step * length))
    return max(turns) if all(map(math.isfinite, turns)) else math.inf


def _gradient(loss: Callable[[], Tensor], wanted: list[Tensor]) -> list[Tensor]:
    devices = sorted({p.get_device() for p in wanted if p.is_cuda})
    with torch.enable_grad(), torch.random.fork_rng(devices):
        found = torch.autograd.grad(loss(), wanted, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(wanted, found, strict=True)]


def _length(tensors: list[Tensor]) -> float:
    return float(torch.stack([t.detach().double().square().sum().cpu() for t in tensors]).sum().sqrt())


def _restore(kept: list[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for tensor, value in kept:
            tensor.copy_(value)
