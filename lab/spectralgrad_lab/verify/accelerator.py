"""What only accelerators have: Triton kernels, reads by the host, and CUDA graphs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import spectralgrad as sg
from spectralgrad.diagnostics.every_function import CALLS
from spectralgrad.diagnostics.every_layer import LAYERS, layer_and_input

from .checks import Check, Skip, Wrong
from .contract import value_and_gradient
from .target import Target
from .transforms import agree, matrices

# What makes the host wait: numbers that Python looks at, and results whose size depends on values.
_READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive"}
# Drivers read their own status, which is not counted.
_DRIVERS = {"_linalg_eigh", "_linalg_svd", "linalg_eig", "_linalg_check_errors", "linalg_eigh", "linalg_svd"}
# Calls that are documented to compute on the host.
_ON_THE_HOST = {"eigsh"}

GRAPHED: dict[str, Callable[[Tensor], Tensor]] = {
    "matrix_sqrt, newton-schulz": lambda A: sg.matrix_sqrt(A, method="newton-schulz"),
    "matrix_inv_sqrt, newton-schulz": lambda A: sg.matrix_inv_sqrt(A, method="newton-schulz"),
    "polar, polar-express": lambda A: sg.polar(A, method="polar-express"),
    "eigvalsh": sg.eigvalsh,
    "matrix_sqrt": sg.matrix_sqrt,
    "matrix_inv_sqrt": sg.matrix_inv_sqrt,
    "polar": sg.polar,
}
_WITHOUT_DRIVERS = 3  # of these; the others need one of torch.linalg's, or a Triton kernel


def reason_against_triton(target: Target) -> str:
    """Return why the Triton kernels are not in use on the device, or an empty string."""
    from spectralgrad.solvers import devices

    state: Callable[[Any], str] | None = getattr(devices, "state", None)
    return devices.missing() or "the operators do not use them yet" if state is None else state(target.device)


def _triton(target: Target) -> str:
    reason = reason_against_triton(target)
    if "self-test" in reason:  # it failed, or stopped
        raise Wrong(reason)
    if reason:
        raise Skip(reason)
    return "in use: the self-test passed"


def reads(call: Callable[[], object]) -> list[str]:
    """The operations of a call that made the host wait for the device, outside the drivers of torch.linalg."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler writes two lines to stderr each time
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        call()
    found = []
    for event in recorded.events() or []:
        name, outer = event.name.removeprefix("aten::"), event.cpu_parent
        above = set()
        while outer is not None:
            above.add(outer.name.removeprefix("aten::"))
            outer = outer.cpu_parent
        if name in _READS and not above & (_DRIVERS | _READS):
            found.append(name)
    return found


def _counted(run: Callable[[], Callable[[], object]], most: int, target: Target) -> str:
    """``run`` prepares a call, which is made once to warm up and once to count."""
    if target.checks_at_once:
        raise Skip("matrices are computed on the CPU, where values are in the host's memory")
    call = run()
    call()
    found = reads(call)
    with sg.solvers.unchecked():
        call()
        unchecked = reads(call)
    sg.solvers.check()
    if len(found) > most or unchecked:
        raise Wrong(f"{len(found)} reads ({', '.join(found)}), and {len(unchecked)} in unchecked code; at most {most}")
    return f"{len(found)}, unchecked 0"


def _reads_of_function(name: str, target: Target) -> str:
    A = target.put(matrices()[0].to(target.wide))
    return _counted(lambda: partial(value_and_gradient(CALLS[name]), A), 1, target)


def _reads_of_layer(name: str, target: Target) -> str:
    def prepared() -> Callable[[], object]:
        layer, X = layer_and_input(name, target.wide)
        layer, X = layer.to(target.device), target.put(X)
        return partial(value_and_gradient(lambda X: layer(X)), X)

    return _counted(prepared, 1, target)


def _graph(name: str, target: Target) -> str:
    """Record a call, and replay it with other values."""
    if not target.is_cuda:
        raise Skip("torch records graphs on CUDA only")
    call = GRAPHED[name]
    A, B = (target.put(x.to(target.wide)) for x in (matrices(), matrices().flip(0) + torch.eye(4)))
    try:
        replayed = _replayed(call, A, B)
    except Exception as problem:
        driven = list(GRAPHED).index(name) >= _WITHOUT_DRIVERS
        reason = reason_against_triton(target)
        if driven and reason:
            raise Skip(f"the drivers of torch.linalg cannot be recorded, and without Triton ({reason})") from problem
        raise
    agree(replayed, call(B))
    return ""


def _replayed(call: Callable[[Tensor], Tensor], A: Tensor, B: Tensor) -> Tensor:
    given, graph, side = A.clone(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with sg.solvers.unchecked():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call(given)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            found = call(given)
        given.copy_(B)
        graph.replay()
        torch.cuda.synchronize()
    sg.solvers.check()
    return found


def _training_graph(target: Target) -> str:
    """Record forward and backward pass of a network with a whitening layer."""
    if not target.is_cuda:
        raise Skip("torch records graphs on CUDA only")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), sg.nn.DecorrelatedBatchNorm2d(8, method="newton-schulz"))
    net, X = net.to(target.device), target.put(torch.randn(8, 3, 10, 10))
    with sg.solvers.unchecked():
        graphed = torch.cuda.make_graphed_callables(net, (X,))
        output: Any = graphed(X)  # type: ignore[operator]
        output.square().mean().backward()
    sg.solvers.check()
    bad = [name for name, p in net.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())]
    if bad:
        raise Wrong(f"no finite gradient of {', '.join(bad)}")
    return ""


def checks(quick: bool) -> Iterator[Check]:
    """The self-test of Triton kernels, reads of every function and layer, and graphs."""
    yield Check("Triton", "self-test", _triton)
    for name in sorted(CALLS.keys() - _ON_THE_HOST):
        yield Check("host reads", name, partial(_reads_of_function, name))
    for name in LAYERS:
        yield Check("host reads", name, partial(_reads_of_layer, name))
    for name in GRAPHED:
        yield Check("graphs", name, partial(_graph, name))
    yield Check("graphs", "training step, DecorrelatedBatchNorm2d", _training_graph)
