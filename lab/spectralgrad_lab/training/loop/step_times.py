"""Time the forward and backward passes of a network and of its spectral layers, separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from spectralgrad.nn import spectral_layers

FORWARD, BACKWARD = "layer_forward_ms", "layer_backward_ms"


class StepTimer:
    """Milliseconds of a training step: forward and backward pass of the network, and of its spectral layers together.

    The backward pass of a layer begins when the gradient of its output is complete and ends when the gradient of its
    input is. On a GPU every measurement waits for the device, which slows the run down.

    Args:
        net: the network; hooks are attached to its spectral layers.
        device: on which it is trained.

    Example:
        >>> from spectralgrad.nn import DecorrelatedBatchNorm2d
        >>> net = nn.Sequential(nn.Conv2d(1, 4, 1), DecorrelatedBatchNorm2d(4))
        >>> timer = StepTimer(net, torch.device("cpu"))
        >>> with timer.timing("forward_ms"):
        ...     y = net(torch.randn(8, 1, 5, 5))
        >>> y.square().sum().backward()
        >>> sorted(timer.take()), timer.take()
        (['forward_ms', 'layer_backward_ms', 'layer_forward_ms'], {})

    Reference: the quantities of ICCV 2021, Table 5, and ECCV 2022, Table 6.
    """

    def __init__(self, net: nn.Module, device: torch.device) -> None:
        self._device = device
        self._times: dict[str, float] = {}
        self._began: dict[tuple[str, str], float] = {}
        for name, layer in spectral_layers(net).items():
            layer.register_forward_pre_hook(self._entering(name))
            layer.register_forward_hook(self._leaving(name))

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Context whose time is added under ``name``."""
        self._begin(name, "")
        yield
        self._end(name, "")

    def take(self) -> dict[str, float]:
        """The times since the last call, by name."""
        times, self._times = self._times, {}
        self._began.clear()
        return times

    def _entering(self, layer: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if not (module.training and torch.is_grad_enabled()):
                return
            for x in inputs[:1]:
                if isinstance(x, Tensor) and x.requires_grad:
                    x.register_hook(lambda _: self._end(BACKWARD, layer))
            self._begin(FORWARD, layer)

        return hook

    def _leaving(self, layer: str) -> Callable[..., None]:
        def hook(module: nn.Module, _: Any, output: Any) -> None:
            if not (module.training and torch.is_grad_enabled()):
                return
            self._end(FORWARD, layer)
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(lambda _: self._begin(BACKWARD, layer))

        return hook

    def _begin(self, name: str, layer: str) -> None:
        self._began[name, layer] = self._now()

    def _end(self, name: str, layer: str) -> None:
        began = self._began.pop((name, layer), None)
        if began is not None:
            self._times[name] = self._times.get(name, 0.0) + 1000 * (self._now() - began)

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return perf_counter()
