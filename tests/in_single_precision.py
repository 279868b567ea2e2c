"""Devices without float64 and without decompositions, as Apple's MPS: everything works, and is warned about once.

:mod:`tests.test_devices` runs this file in a process of its own, because the pretended device changes torch.
"""

import warnings

import pytest
import torch

import spectralgrad as sg
from spectralgrad.diagnostics.every_function import CALLS, METHODS, matrix
from spectralgrad.diagnostics.every_layer import LAYERS, layer_and_input
from spectralgrad.dispatch import host
from spectralgrad_lab.bench.studies import pretended_device as device
from spectralgrad_lab.bench.studies.pretended_device import counted, put

pytestmark = pytest.mark.filterwarnings("ignore:.* has no float64")


@pytest.fixture(autouse=True, scope="module")
def _limited():
    device.register()
    with device.limited():
        host._doubles.cache_clear()
        yield


def leaves(results):
    return [x for x in torch.utils._pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def compared(call, X, tolerance=1e-4):
    """Results and gradients are on the device, and as on the CPU."""
    X = X.float().requires_grad_()
    ours = put(X)
    found, expected = leaves(call(ours)), leaves(call(X))
    for results in (found, expected):
        with_gradient = [x for x in results if x.requires_grad]
        if with_gradient:
            torch.autograd.backward(with_gradient, [torch.ones_like(x) for x in with_gradient])
    for x, wanted in [*zip(found, expected, strict=True), (ours.grad, X.grad)]:
        if wanted is not None:
            assert x.device.type == device.NAME
            wanted = wanted.detach().to(x.dtype)
            torch.testing.assert_close(x.detach().on_host, wanted, rtol=tolerance, atol=tolerance)


def test_the_device_is_found_to_lack_it():
    assert not host.has_double(put(torch.ones(1)).device)
    assert host.has_double(torch.device("cuda"))
    assert not host.has_double(torch.device("mps"))
    with pytest.raises(TypeError, match="float64"):
        put(torch.ones(1)).double()
    with pytest.raises(NotImplementedError, match="eigh"):
        torch.linalg.eigh(put(torch.eye(2)))


@pytest.mark.parametrize("name", CALLS)
def test_function(name):
    compared(CALLS[name], matrix())


@pytest.mark.parametrize("name", METHODS)
def test_method(name):
    compared(METHODS[name], matrix(), 2e-3)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_layer(name, training):
    layer, X = layer_and_input(name, torch.float32)
    moved = put(layer_and_input(name, torch.float32)[0]).train(training)
    layer.train(training)
    compared(lambda X: (moved if X.device.type == device.NAME else layer)(X), X, 1e-3)
    for x, wanted in zip(moved.buffers(), layer.buffers(), strict=True):
        torch.testing.assert_close(x.on_host, wanted, rtol=1e-3, atol=1e-4)


def test_features_stay_on_the_device(monkeypatch):
    layer, X = layer_and_input("DecorrelatedBatchNorm2d", torch.float32)
    moved, X, to_host, shapes = put(layer), put(X), host._to_host, set()

    def noted(x, device):
        shapes.add(x.shape if isinstance(x, torch.Tensor) else None)
        return to_host(x, device)

    monkeypatch.setattr(host, "_to_host", noted)
    with counted() as count:
        moved(X).square().mean().backward()
    assert shapes - {None} == {(1, 8, 8)}
    assert len([place for place in count.reads if place.startswith("_to_copy")]) <= 2


OTHERS = {
    "inverse_root": lambda A: sg.optim.inverse_root(A, 4),
    "coupled_inverse_root": lambda A: sg.optim.coupled_inverse_root(A, 4)[0],
    "eigenbasis": lambda A: sg.optim.eigenbasis(A).values,
    "eigenbasis continued": lambda A: sg.optim.eigenbasis(A, start=A.cos()).values,
    "nearest_orthogonal": sg.optim.nearest_orthogonal,
    "optimal_rate": lambda A: sg.optim.optimal_rate(A, A.mT + A),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_optimizers_call(name):
    A = matrix().float()
    found, wanted = OTHERS[name](put(A)), OTHERS[name](A)
    torch.testing.assert_close(found.on_host, wanted.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::spectralgrad.optim.step_hook.ConditioningWarning")
def test_hooks_of_optimizers():
    ours, theirs = put(matrix().float()).requires_grad_(), matrix().float().requires_grad_()
    for parameter in (ours, theirs):
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        sg.optim.NearestOrthogonalGradient(optimizer, [parameter], keep_norm=True)
        sg.optim.OptimalLearningRate(optimizer, [parameter])
        (parameter @ parameter).sum().backward()
        optimizer.step()
    torch.testing.assert_close(ours.detach().on_host, theirs.detach(), rtol=1e-4, atol=1e-4)


def test_a_convolution_with_folded_whitening():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), sg.nn.DecorrelatedBatchNorm2d(8)).eval()
    X = torch.randn(2, 3, 6, 6)
    expected, moved = net(X).detach(), put(net)
    sg.nn.fuse_whitening(moved)
    torch.testing.assert_close(moved(put(X)).detach().on_host, expected, rtol=1e-4, atol=1e-4)


def inspected(A):
    report = sg.diagnostics.inspect(A)
    assert "condition number" in str(report)
    return report.eigenvalues


def monitored(A):
    layer = put(sg.nn.DecorrelatedBatchNorm1d(4)) if A.device.type == device.NAME else sg.nn.DecorrelatedBatchNorm1d(4)
    with sg.diagnostics.Monitor(layer) as monitor:
        layer(A).square().sum().backward()
    assert monitor
    return layer.running_cov


def overridden(A):
    with sg.override_linalg():
        return torch.linalg.eigh(A).eigenvalues


@pytest.mark.parametrize("call", [inspected, monitored, overridden, torch.func.vmap(sg.eigvalsh)])
def test_diagnostics_rescue_and_vmap(call):
    A = matrix().float().expand(2, 4, 4).clone() if call not in (inspected, monitored, overridden) else matrix().float()
    found = call(put(A))
    torch.testing.assert_close(getattr(found, "on_host", found), call(A), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_orthogonal_convolution(max_norm):
    layer, X = sg.nn.OrthogonalConv2d(3, 4, 3, max_norm=max_norm), torch.randn(2, 3, 5, 5)
    expected = layer(X).detach()
    torch.testing.assert_close(put(layer)(put(X)).detach().on_host, expected, rtol=1e-4, atol=1e-4)


def test_errors_are_those_of_the_cpu():
    A = torch.stack([matrix().float()] * 3)
    A[1, 0, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match="position 1"):
        sg.matrix_sqrt(put(A))


def test_it_is_warned_about_once():
    host._warn.cache_clear()
    A = put(matrix().float())
    with pytest.warns(UserWarning, match="pretended has no float64, so spectralgrad computes .* on the CPU"):
        sg.matrix_sqrt(A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sg.matrix_sqrt(A)
