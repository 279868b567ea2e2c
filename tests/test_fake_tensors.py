"""Fake tensors of CUDA pass every function and layer in a build without CUDA, and come out with the right shapes."""

import pytest
import torch

from spectralgrad.diagnostics.every_function import CALLS, METHODS
from spectralgrad.diagnostics.every_layer import LAYERS
from spectralgrad.dispatch import torch_internals
from spectralgrad_lab.bench.studies import pretended_device

from . import fakes, forked
from .helpers import NO_DEVICE

DEVICE = "cuda"
FUNCTIONS = {name: call for name, call in CALLS.items() if name != "eigsh"} | METHODS  # that looks at values


@pytest.fixture(autouse=True)
def _without_cuda():
    if torch.cuda.is_available():
        pytest.skip("with a GPU, fakes are not needed")
    with torch.no_grad():
        yield


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    fakes.require(*fakes.of_function(FUNCTIONS[name], DEVICE, False), DEVICE)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_layer(name, training):
    fakes.require(*fakes.of_layer(name, training, DEVICE, False), DEVICE)


def test_there_is_no_device():
    with pytest.raises((RuntimeError, AssertionError)):
        torch.empty(1, device=DEVICE)


def test_indexing():
    x = torch.arange(60.0).view(3, 4, 5)
    mask, rows = torch.tensor([True, False, True]), torch.tensor([2, 0])
    for index in (0, -1, None, ..., mask, rows, slice(1, None)):
        assert torch.equal(fakes.indexed(x, index), torch._C.TensorBase.__getitem__(x, index))
    for index in ((..., 0), (..., None, slice(-2, None)), (0, ..., 1), (slice(None), rows), (None, 1, ..., None)):
        wanted = torch._C.TensorBase.__getitem__(x, index)
        assert torch.equal(fakes.indexed(x, index), wanted)


@NO_DEVICE
def test_backward_passes():
    code = "from tests import test_fake_tensors as t; t.differentiate()"
    done = forked.run("-c", code)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def differentiate():
    """Backward passes through every function and layer, with fake tensors of the pretended device."""
    seen = torch_internals._extraordinary_keys
    pretended_device.register()
    torch_internals._extraordinary_keys = seen  # fake tensors have to be noticed, whatever else the device changes
    device = pretended_device.NAME
    calls = [fakes.of_function(call, device, True) for call in FUNCTIONS.values()]
    calls += [fakes.of_layer(name, training, device, True) for name in LAYERS for training in (True, False)]
    with_gradient = sum(fakes.require(*call, device) for call in calls)
    assert with_gradient > 0.9 * len(calls), with_gradient
