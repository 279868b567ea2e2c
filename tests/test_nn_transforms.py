"""Layers under torch.compile, torch.export, onnxruntime, torch.func, and activation checkpoints."""

import copy
import importlib.util
import io
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacfwd, jacrev, stack_module_state, vmap
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import spectralgrad as sg
from spectralgrad.diagnostics.every_layer import LAYERS, RUNNING, layer_and_input

from .helpers import BACKEND


def step(net, X):
    net.zero_grad()
    X = X.detach().requires_grad_()
    net(X).square().sum().backward()
    return [X.grad, *[p.grad for p in net.parameters()]]


# Variants of a layer, which have a hyphen in their names, take a second each.
EACH_ONCE = [pytest.param(name, marks=pytest.mark.compiler if "-" in name else ()) for name in LAYERS]


@pytest.mark.parametrize("name", EACH_ONCE)
def test_a_training_step_compiles_without_a_graph_break(name):
    torch._dynamo.reset()
    layer, X = layer_and_input(name)
    eager = copy.deepcopy(layer)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for ours, expected in zip(step(compiled, X), step(eager, X), strict=True):
        assert_close(ours, expected)
    for ours, expected in zip(layer.buffers(), eager.buffers(), strict=True):
        assert_close(ours, expected)


@pytest.mark.compiler
def test_a_small_net_compiles_with_inductor():
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), sg.nn.DecorrelatedBatchNorm2d(8, groups=2), nn.ReLU())
    X = torch.randn(4, 3, 6, 6)
    eager = copy.deepcopy(net)
    for ours, expected in zip(
        step(torch.compile(net, fullgraph=True, backend=BACKEND), X), step(eager, X), strict=True
    ):
        assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["DecorrelatedBatchNorm2d", "PCADenoising2d"])
def test_compiled_evaluation_follows_the_statistics(name):
    torch._dynamo.reset()
    layer, X = layer_and_input(name)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for scale in (1, 3):
        layer.train()(scale * X)
        layer.eval()
        assert_close(compiled(X), layer(X))


@pytest.mark.parametrize("name", LAYERS)
def test_evaluated_layers_are_exported(name):
    layer, X = layer_and_input(name)
    layer(X)
    exported = torch.export.export(layer.eval(), (X,))
    assert_close(exported.module()(X), layer(X))
    if name in RUNNING:
        assert not any("spectralgrad" in str(node.target) for node in exported.graph.nodes)


def test_a_function_of_the_user_is_exported_without_its_derivative():
    """Strictly: Dynamo cannot export the transforms of torch.func by which functions are differentiated."""
    layer, X = layer_and_input("TokenPooling")
    exported = torch.export.export(layer, (X,), strict=True)
    assert_close(exported.module()(X), layer(X))
    assert not any("functorch" in str(node.target) for node in exported.graph.nodes)


_needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in ("onnx", "onnxruntime", "onnxscript")),
    reason="onnx, onnxruntime and onnxscript are needed: pip install -e '.[dev]'",
)


def _in_onnxruntime(net, X, *inputs):
    """``net`` exported with the example ``X``, then run in onnxruntime on each of the inputs."""
    import onnxruntime

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter about itself
        program = torch.onnx.export(net, (X,), dynamo=True, verbose=False)
    file = io.BytesIO()
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    name = session.get_inputs()[0].name
    return [torch.from_numpy(session.run(None, {name: x.numpy()})[0]) for x in inputs]


@pytest.mark.compiler
@_needs_onnx
@pytest.mark.parametrize("fused", [False, True], ids=["layers", "fused"])
def test_evaluated_nets_run_in_onnxruntime(fused):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        sg.nn.DecorrelatedBatchNorm2d(8, groups=2),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3),
        sg.nn.PCADenoising2d(6, keep=4),
    )
    X = torch.randn(4, 3, 8, 8)
    net(X)
    expected = net.eval()(X).detach()
    if fused:
        sg.nn.fuse_whitening(net)
    (result,) = _in_onnxruntime(net, X, X)
    assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.compiler
@_needs_onnx
@pytest.mark.parametrize("normalize", ["trace", "frobenius"])
def test_pooling_by_products_runs_in_onnxruntime(normalize):
    """Newton–Schulz is made of products; the checks of the input, an operator of ours, are left out at export."""
    torch.manual_seed(0)
    pooling = sg.nn.CovariancePooling(8, reduce_to=6, method=sg.NewtonSchulz(normalize=normalize))
    net = nn.Sequential(nn.Conv2d(3, 8, 3), pooling).eval()
    X, other = torch.randn(2, 2, 3, 9, 9).unbind()
    exported = torch.export.export(net, (X,))
    assert not any("spectralgrad" in str(node.target) for node in exported.graph.nodes)
    (result,) = _in_onnxruntime(net, X, other)
    assert_close(result, net(other).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", RUNNING)
def test_evaluated_layers_are_traced(name, frozen, mode):
    """As torch.jit.trace and torch.onnx.export(dynamo=False) do it."""
    layer, X = layer_and_input(name)
    layer(X)
    layer.eval().requires_grad_(not frozen)
    with mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(layer, X)
        assert_close(traced(2 * X[:3]), layer(2 * X[:3]))


@pytest.mark.parametrize("name", LAYERS)
def test_torch_func_agrees_with_itself(name):
    options = {"track_running_stats": False} if name in RUNNING else {}
    layer, X = layer_and_input(name, **options)
    parameters = dict(layer.named_parameters())

    def loss(x):
        return functional_call(layer, parameters, (x,)).square().sum()

    batch = torch.stack([X, 2 * X + 1])
    expected = torch.stack([grad(loss)(x) for x in batch])
    assert_close(vmap(grad(loss))(batch), expected)
    x = X.detach().requires_grad_()
    assert_close(torch.autograd.grad(layer(x).square().sum(), x)[0], expected[0])
    small = X[:4] if X.dim() > 2 else X[:12]
    assert_close(jacfwd(loss)(small), jacrev(loss)(small))


@pytest.mark.parametrize("name", RUNNING)
def test_a_layer_used_twice_has_the_same_gradient_when_it_is_differentiated_again(name):
    layer, X = layer_and_input(name, track_running_stats=False)
    X = X.requires_grad_()
    loss = layer(torch.tanh(layer(X))).pow(3).sum()
    inputs = [X, *layer.parameters()]
    expected = torch.autograd.grad(loss, inputs, retain_graph=True)
    assert_close(torch.autograd.grad(loss, inputs, create_graph=True), expected)


def test_an_ensemble_of_evaluated_layers():
    """stack_module_state and vmap: each member uses its own statistics, not the kept matrix of one of them."""
    members = []
    for seed in range(3):
        layer, X = layer_and_input("DecorrelatedBatchNorm2d", seed=seed)
        layer(X)
        members.append(layer.eval())
    parameters, buffers = stack_module_state(members)
    result = vmap(lambda p, b, x: functional_call(members[0], (p, b), (x,)), (0, 0, None))(parameters, buffers, X)
    assert_close(result, torch.stack([layer(X) for layer in members]))


def test_functional_call_uses_the_statistics_it_is_given():
    layer, X = layer_and_input("DecorrelatedBatchNorm2d")
    other = copy.deepcopy(layer)
    layer(X)
    layer.eval()
    other(3 * X)
    given = dict(other.state_dict())
    assert_close(functional_call(layer, given, (X,)), other.eval()(X))


@pytest.mark.parametrize("name", RUNNING)
def test_activation_checkpoints(name):
    layer, X = layer_and_input(name)
    expected = step(layer, X)
    X = X.detach().requires_grad_()
    layer.zero_grad()
    checkpoint(layer, X, use_reentrant=False).square().sum().backward()
    for ours, wanted in zip([X.grad, *[p.grad for p in layer.parameters()]], expected, strict=True):
        assert_close(ours, wanted)


def test_inference_mode_leaves_a_layer_that_trains():
    layer, X = layer_and_input("DecorrelatedBatchNorm2d")
    with torch.inference_mode():
        expected = layer.eval()(X)
    assert_close(layer(X.requires_grad_()), expected)
    layer(X).square().sum().backward()
    assert X.grad is not None
