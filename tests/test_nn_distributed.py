"""Two gloo processes give what one process gives on the whole batch."""

import os
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close

import spectralgrad as sg

from .features import needs
from .forked import Forked

pytestmark = [
    needs("destruction of gloo"),
    pytest.mark.runs,
    pytest.mark.xdist_group("distributed"),  # or each worker of pytest-xdist would start the processes
]
SPLITS = {"even": (4, 4), "uneven": (1, 7), "empty": (0, 8)}
LAYERS = {
    "exact": lambda **o: sg.nn.DecorrelatedBatchNorm2d(6, groups=2, **o),
    "newton-schulz": lambda **o: sg.nn.DecorrelatedBatchNorm2d(6, method="newton-schulz", momentum=None, **o),
    "pca": lambda **o: sg.nn.DecorrelatedBatchNorm2d(6, whitening="pca", statistics="whitening", **o),
    "denoising": lambda **o: sg.nn.PCADenoising2d(6, keep=3, **o),
}


def inputs():
    """Features with a mean far from zero, the gradient of the output, and what a second step sees."""
    generator = torch.Generator().manual_seed(0)
    X, G = torch.randn(2, 8, 6, 3, 2, dtype=torch.float64, generator=generator)
    return 100 + 2 * X, G


def results(layer, X, G, second_order=False):
    """Output, gradients and statistics after one training step."""
    layer = layer.double()
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(0.5, 2, 6))
    X = X.clone().requires_grad_()
    Y = layer(X)
    (g,) = torch.autograd.grad(Y, X, G, create_graph=second_order)
    found = {"output": Y, "input gradient": g}
    if second_order:
        (found["second"],) = torch.autograd.grad(g.square().sum(), X)
    else:
        layer(X).backward(G)
        found |= {"weight gradient": layer.weight.grad, "bias gradient": layer.bias.grad}
    found |= dict(layer.named_buffers())
    return {name: value.detach() for name, value in found.items() if value is not None}


def work(rank, folder):
    """What each process does: every layer and split, its part of the batch; the results go to a file."""
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    try:
        found = every_result(rank)
    finally:
        dist.destroy_process_group()
    torch.save(found, f"{folder}/{rank}")


def every_result(rank):
    X, G = inputs()
    found = {}
    for split, sizes in SPLITS.items():
        part = slice(0, sizes[0]) if rank == 0 else slice(sizes[0], None)
        for name, make in LAYERS.items():
            found[split, name] = results(make(sync=True), X[part], G[part])
        found[split, "second"] = results(LAYERS["exact"](sync=True), X[part], G[part], second_order=True)
    half = slice(4 * rank, 4 * rank + 4)
    found["even", "apart"] = results(LAYERS["exact"](), X[half], G[half])
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The results of both processes; this one is the second."""
    folder = str(tmp_path_factory.mktemp("gloo"))
    other = Forked("-c", "import sys; from tests.test_nn_distributed import work; work(0, sys.argv[1])", folder)
    try:
        work(1, folder)
        said = other.communicate(timeout=60)
        assert other.returncode == 0, said
    finally:
        other.kill()
    return [torch.load(f"{folder}/{rank}") for rank in range(2)]


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed")
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", [*LAYERS, "second"])
def test_two_processes_equal_one(found, name, split):
    X, G = inputs()
    whole = results(LAYERS.get(name, LAYERS["exact"])(sync=True), X, G, second_order=name == "second")
    first, second = (part[split, name] for part in found)
    for key, expected in whole.items():
        if key in ("output", "input gradient", "second"):
            ours = torch.cat([first[key], second[key]])
        elif key in ("weight gradient", "bias gradient"):
            ours = first[key] + second[key]
        else:
            assert_close(first[key], second[key], rtol=0, atol=0)
            ours = first[key]
        assert_close(ours, expected)


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed")
def test_without_sync_each_process_is_alone(found):
    X, G = inputs()
    for part, own in zip(found, (slice(0, 4), slice(4, 8)), strict=True):
        for key, expected in results(LAYERS["exact"](), X[own], G[own]).items():
            assert_close(part["even", "apart"][key], expected)
