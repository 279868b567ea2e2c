"""Accelerators: where results are, what the host reads, and how failures come out, on a device that is not the CPU.

:mod:`tests.test_devices` runs this file in processes of their own, because the pretended device changes torch.
"""

import re
from pathlib import Path

import pytest
import torch

import spectralgrad as sg
from spectralgrad.diagnostics.every_function import CALLS, METHODS, matrix
from spectralgrad.diagnostics.every_layer import LAYERS, RUNNING, layer_and_input
from spectralgrad.solvers.decompose import choice
from spectralgrad_lab.bench.studies import pretended_device as device
from spectralgrad_lab.bench.studies.pretended_device import counted, put

PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu.md"
FUNCTIONS = {name: call for name, call in CALLS.items() if name != "eigsh"}  # which runs ARPACK on the host


@pytest.fixture(autouse=True, scope="module")
def _registered():
    device.register()


@pytest.fixture(params=["checked", "unchecked"])
def most(request):
    """The most that a call may read, in checked and in unchecked code, after which nothing has failed."""
    if request.param == "checked":
        yield 1
        return
    with sg.solvers.unchecked():
        yield 0
    sg.solvers.check()


def leaves(results):
    return [x for x in torch.utils._pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def backward(results):
    found = [x for x in leaves(results) if x.requires_grad]
    if found:
        torch.autograd.backward(found, [torch.ones_like(x) for x in found])


def compared(call, X, most):
    """Results and gradients are on the device and as on the CPU, and the host waits no longer than it may."""
    X = X.requires_grad_()
    ours = put(X)
    with counted() as forward:
        results = call(ours)
    with counted() as back:
        backward(results)
    assert len(forward.reads) <= most, forward.reads
    assert not back.reads
    assert not forward.uploads
    assert not back.uploads
    expected = call(X)
    backward(expected)
    pairs = [*zip(leaves(results), leaves(expected), strict=True), (ours.grad, X.grad)]
    for found, wanted in pairs:
        if wanted is not None:
            assert found.device.type == device.NAME
            torch.testing.assert_close(found.detach().on_host, wanted.detach(), rtol=1e-6, atol=1e-8)
    return forward


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name, most):
    compared(FUNCTIONS[name], matrix(), most)


@pytest.mark.parametrize("name", METHODS)
def test_method(name, most):
    METHODS[name](put(matrix()))  # random numbers that a method starts from are copied to the device once
    compared(METHODS[name], matrix(), most)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_other_types(dtype, most):
    for call in (sg.eigvalsh, sg.svdvals, sg.matrix_inv_sqrt, sg.matrix_log, sg.polar, sg.nuclear_norm):
        A = torch.stack([matrix(seed) for seed in range(3)]).to(dtype)
        with counted() as count:
            result = call(put(A))
        assert len(count.reads) <= most, count.reads
        torch.testing.assert_close(result.on_host, call(A), rtol=1e-2, atol=1e-2)


def test_pencils_in_single_precision(most):
    A, B = matrix().float(), matrix(1).float()
    with counted() as count:
        w, V = sg.eigh(put(A), put(B))
    assert len(count.reads) <= most
    assert (w.dtype, V.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(w.on_host, sg.eigh(A, B)[0])


ROWS = re.findall(r"^\| `(\w+)` \| (\d) \| (\d) \| (\d) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", [row[0] for row in ROWS])
def test_layers_and_functions_read_as_often_as_the_documentation_says(name):
    if name in FUNCTIONS:
        call, X = FUNCTIONS[name], put(matrix()).requires_grad_()
    else:
        layer, X = layer_and_input(name if name in LAYERS else f"{name}-groups")
        call, X = put(layer), put(X).requires_grad_()
    with counted() as forward:
        results = call(X)
    with counted() as back:
        backward(results)
    with sg.solvers.unchecked(), counted() as unchecked:
        backward(call(X))
    found = [len(count.reads) for count in (forward, back, unchecked)]
    assert (name, *map(str, found)) in ROWS


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_layer(name, training, most):
    layer, X = layer_and_input(name)
    moved = put(layer_and_input(name)[0]).train(training)
    layer.train(training)

    def call(X):
        return (moved if X.device.type == device.NAME else layer)(X)

    compared(call, X, most)
    for found, wanted in zip(moved.buffers(), layer.buffers(), strict=True):
        torch.testing.assert_close(found.on_host, wanted)
    for found, wanted in zip(moved.parameters(), layer.parameters(), strict=True):
        if wanted.grad is not None:
            torch.testing.assert_close(found.grad.on_host, wanted.grad)


OTHERS = {
    "inverse_root": lambda A: sg.optim.inverse_root(A, 4),
    "coupled_inverse_root": lambda A: sg.optim.coupled_inverse_root(A, 4),
    "eigenbasis": lambda A: sg.optim.eigenbasis(A).values,
    "nearest_orthogonal": sg.optim.nearest_orthogonal,
    "optimal_rate": lambda A: sg.optim.optimal_rate(A, A.mT + A),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_optimizers_call(name, most):
    A, call = matrix(), OTHERS[name]
    with counted() as count:
        found = call(put(A))
    assert len(count.reads) <= most, count.reads
    for x, wanted in zip(leaves(found), leaves(call(A)), strict=True):
        torch.testing.assert_close(x.on_host, wanted)


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_orthogonal_convolution(max_norm):
    layer, X = sg.nn.OrthogonalConv2d(3, 4, 3, max_norm=max_norm).double(), torch.randn(2, 3, 5, 5).double()
    expected, moved = layer(X).detach(), put(layer)
    with counted() as count:
        found = moved(put(X)).detach()
    assert len(count.reads) == 1
    torch.testing.assert_close(found.on_host, expected)
    with sg.solvers.unchecked(), counted() as count:
        torch.testing.assert_close(moved(put(X)).detach().on_host, expected, rtol=1e-3, atol=1e-4)
    assert len(count.reads) == (max_norm is None)
    moved.weight.data.on_host[0, 0, 0, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match="weight"):
        moved(put(X))


def test_gradients_that_are_not_finite_are_left_alone():
    parameters = [put(matrix(seed)).requires_grad_() for seed in range(2)]
    optimizer = torch.optim.SGD(parameters)
    sg.optim.NearestOrthogonalGradient(optimizer, parameters)
    gradients = [matrix(2), matrix(3)]
    gradients[1][0, 0] = torch.nan
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = put(gradient)
    optimizer.step()
    torch.testing.assert_close(parameters[0].grad.on_host, sg.optim.nearest_orthogonal(gradients[0]))
    torch.testing.assert_close(parameters[1].grad.on_host, gradients[1], equal_nan=True)


DECOMPOSING = {
    "eigh": (lambda A: sg.eigh(A).eigenvectors, [1]),
    "eigvalsh": (sg.eigvalsh, [1]),
    "svd": (lambda A: sg.svd(A).U, [1]),
    "svdvals": (sg.svdvals, [1]),
    "matrix_sqrt": (sg.matrix_sqrt, [1, 2]),
    "matrix_inv_sqrt": (sg.matrix_inv_sqrt, [1, 2]),
    "matrix_log": (sg.matrix_log, [1, 2]),
    "matrix_exp": (sg.matrix_exp, [1]),
    "matrix_power": (lambda A: sg.matrix_power(A, 0.3), [1, 2]),
    "newton-schulz": (lambda A: sg.matrix_sqrt(A, method="newton-schulz"), [1, 2]),
    "polar": (sg.polar, [1]),
    "muon": (lambda A: sg.polar(A, method="muon"), [1]),
    "spectral_projector": (lambda A: sg.spectral_projector(A, 2), [1]),
    "nuclear_norm": (sg.nuclear_norm, [1]),
    "affine_invariant": (lambda A: sg.affine_invariant(A, A.detach() + torch.eye(4, device=A.device)), [1, 2]),
}


def spoiled():
    """Four matrices; that at position 1 is not finite, and that at position 2 not positive."""
    A = torch.stack([matrix(seed) for seed in range(4)])
    A[1, 0, 0] = torch.nan
    A[2] *= -1
    return A


@pytest.mark.parametrize("name", DECOMPOSING)
def test_a_failure_raises_the_error_of_the_cpu(name):
    call, _ = DECOMPOSING[name]
    with pytest.raises(sg.SpectralError) as expected:
        call(spoiled())
    with pytest.raises(type(expected.value)) as found:
        call(put(spoiled()))
    assert str(found.value).partition(": ")[2] == str(expected.value).partition(": ")[2]
    sg.solvers.check()  # what was raised is not reported again


@pytest.mark.parametrize("name", DECOMPOSING)
def test_an_unchecked_failure_is_nan_in_the_matrices_concerned(name):
    call, wrong = DECOMPOSING[name]
    A = put(spoiled()).requires_grad_()
    with sg.solvers.unchecked(), counted() as count:
        result = call(A)
        backward(result)
    assert not count.reads
    for x in (result.detach(), A.grad):
        nan = x.on_host.isnan().reshape(4, -1)
        assert nan.any(-1).nonzero().flatten().tolist() == wrong
        assert torch.equal(nan.all(-1), nan.any(-1)) or name in ("eigh", "svd")  # a gradient reads one triangle
    positions = f"position {wrong[0]}" if len(wrong) == 1 else "positions 1, 2"
    with pytest.raises(sg.SpectralError, match=f"returned NaN: .* at {positions}"):
        sg.solvers.check()
    sg.solvers.check()  # a report clears the flags


NOT_POSITIVE = -matrix()
NOT_FINITE, INFINITE, ASYMMETRIC = (matrix() for _ in range(3))
NOT_FINITE[2, 1], INFINITE[1, 1] = torch.nan, torch.inf
ASYMMETRIC[0, 1:] += 3
REFUSED = {"negative": NOT_POSITIVE, "nan": NOT_FINITE, "inf": INFINITE, "asymmetric": ASYMMETRIC}


@pytest.mark.parametrize("name", {**FUNCTIONS, **METHODS})
def test_unchecked_calls_return_nan_where_checked_ones_raise_and_the_same_elsewhere(name):
    call = {**FUNCTIONS, **METHODS}[name]
    for A in (*REFUSED.values(), 1e300 * matrix(), 1e-300 * matrix()):
        with sg.solvers.unchecked():
            found = [x.detach().on_host for x in leaves(call(put(A)))]
        try:
            wanted = [x.detach().on_host for x in leaves(call(put(A)))]
        except sg.SpectralError:
            assert all(x.isnan().all() for x in found)
            with pytest.raises(sg.SpectralError, match="unchecked calls failed"):
                sg.solvers.check()
            continue
        sg.solvers.check()
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_one_matrix_of_a_layer_spoils_all_of_its_output():
    layer, X = layer_and_input("DecorrelatedBatchNorm2d-groups")
    X[0, 0, 0, 0] = torch.nan
    with sg.solvers.unchecked(), counted() as count:
        assert put(layer)(put(X)).on_host.isnan().all()
    assert not count.reads
    with pytest.raises(sg.SpectralError, match="normalize"):
        sg.solvers.check()


@pytest.fixture
def failing(monkeypatch):
    """The driver fails on the first matrix of every batch."""
    driver = choice.eigh_by_lapack

    def eigh(A):
        w, V = driver(A)
        w[0] = torch.nan
        return w, V

    monkeypatch.setattr(choice, "eigh_by_lapack", eigh)


def test_a_matrix_on_which_the_driver_fails_is_decomposed_again(failing):
    A = torch.stack([matrix(seed) for seed in range(3)])
    sg.solvers.reset_report()
    w = sg.eigh(put(A)).eigenvalues
    torch.testing.assert_close(w.on_host, torch.linalg.eigvalsh(A))
    assert sum(sg.solvers.report().fallbacks.values()) <= 1
    with sg.solvers.unchecked():
        w = sg.eigh(put(A)).eigenvalues.on_host
    assert w[0].isnan().all()
    torch.testing.assert_close(w[1:], torch.linalg.eigvalsh(A)[1:])
    with pytest.raises(sg.SpectralError, match="eigh at position 0"):
        sg.solvers.check()


@pytest.mark.parametrize("name", [name for name in RUNNING if "pca" in name.lower()])
def test_a_batch_that_needs_a_second_run_counts_once(name, failing):
    layer, X = layer_and_input(name)
    other, _ = layer_and_input(name)
    moved = put(layer)
    moved(put(X))
    other(X)
    for found, wanted in zip(moved.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(found.on_host, wanted)


def test_a_driver_that_refuses_a_batch(monkeypatch):
    """As cuSOLVER's do for a matrix that is not finite."""
    driver = choice.eigh_by_lapack

    def eigh(A):
        if bool(A.any()):
            raise torch.linalg.LinAlgError("refused")
        return driver(A)

    monkeypatch.setattr(choice, "eigh_by_lapack", eigh)
    A = torch.stack([matrix(seed) for seed in range(3)])
    torch.testing.assert_close(sg.eigh(put(A)).eigenvalues.on_host, torch.linalg.eigvalsh(A))
    with sg.solvers.unchecked():
        assert sg.eigh(put(A)).eigenvalues.on_host.isnan().all()
    with pytest.raises(sg.SpectralError, match="eigh at positions 0, 1, 2"):
        sg.solvers.check()


def test_operators_are_left_out_where_nothing_intercepts_calls():
    with counted() as count:
        root = sg.matrix_sqrt(put(matrix()))
    assert not count.operators
    assert len(count.reads) == 1
    torch.testing.assert_close(root.on_host, sg.matrix_sqrt(matrix()))


def test_inference_mode():
    with sg.solvers.unchecked(), torch.inference_mode():
        sg.matrix_sqrt(put(spoiled()))
    with sg.solvers.unchecked():
        sg.matrix_sqrt(put(spoiled()))
    with pytest.raises(sg.SpectralError, match="matrix_sqrt at positions 1, 2"):
        sg.solvers.check()


def test_vmap(most):
    A = torch.stack([matrix(seed) for seed in range(3)])
    with counted() as count:
        found = torch.func.vmap(sg.matrix_sqrt)(put(A))
    assert len(count.reads) <= most
    torch.testing.assert_close(found.on_host, sg.matrix_sqrt(A))


def test_tensors_of_two_devices_do_not_meet():
    with pytest.raises(RuntimeError, match="same device"):
        put(torch.ones(2)) + torch.ones(2)


def test_what_is_counted():
    x = put(torch.ones(2))
    with counted() as count:
        bool(x.any()), x.tolist(), x.cpu(), x[x > 0], x.sum().item(), torch.tensor(1.0, device=x.device)
    assert len(count.reads) == 5
    assert len(count.uploads) == 1
    with counted() as count:
        x.add_(1).mul(2), torch.zeros_like(x), torch.where(x > 0, x, 0)
    assert not count.reads
    assert not count.uploads
