"""The short way of functions of a matrix in eager mode, against the general way."""

from dataclasses import dataclass
from itertools import product
from types import ModuleType

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad import precision
from spectralgrad.native import kernel
from spectralgrad.native.thresholds import Table
from spectralgrad.solvers.decompose.operators import Operator
from spectralgrad.testing import with_spectrum

from .helpers import in_turn
from .kernel_calls import using

needs_kernel = pytest.mark.skipif(kernel() is None, reason="the kernel is not built")
ROOTS = [sg.matrix_sqrt, sg.matrix_inv_sqrt]
SPECTRA = {
    "distinct": lambda d: torch.linspace(1, 3, d),
    "tied": lambda d: torch.arange(d).div(2, rounding_mode="floor") + 1.0,
    "singular": lambda d: torch.arange(d).clamp_min(1) - 1.0,
    "zero": torch.zeros,
}


@dataclass(frozen=True)
class _Ordinary(sg.Taylor):
    """The same rule; one that replaces a method does not take the short way."""

    def gaps(self, w):
        return super().gaps(w)


@dataclass(frozen=True)
class _Named(sg.Taylor):
    """The same rule by another name."""

    degree: int = 4


def _matrix(spectrum, d, dtype=torch.float64):
    return with_spectrum(SPECTRA[spectrum](d).double(), dtype=dtype, seed=d)


def _cotangent(A):
    return torch.randn(A.shape, generator=torch.Generator().manual_seed(0), dtype=A.dtype)


def _close(x, y, eps):
    """Sums of d products of d entries; the largest entry determines the rounding error."""
    assert_close(x, y, rtol=0, atol=8 * x.shape[-1] * eps * float(y.detach().abs().max()) + torch.finfo(y.dtype).tiny)


@in_turn(
    "root, spectrum",
    product(ROOTS, SPECTRA),
    shape=[(1,), (8,), (64,), (1, 8), (5, 8), (2, 3, 4)],
    dtype=[torch.float32, torch.float64],
)
def test_roots_by_taylor_are_the_same(root, spectrum, dtype, shape):
    *batch, d = shape
    A = _matrix(spectrum, d, dtype).expand(*batch, d, d).clone().requires_grad_()
    results = []
    for method in (sg.Taylor(degree=4), _Ordinary(degree=4)):
        S = root(A, method=method)
        results.append((S, *torch.autograd.grad(S, A, _cotangent(A))))
    for short, general in zip(*results, strict=True):
        _close(short, general, torch.finfo(dtype).eps)
    assert_close(root(A.detach(), method="svd-taylor"), results[0][0].detach(), rtol=0, atol=0)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("spectrum", ["distinct", "singular", "tied"])
def test_second_derivatives_of_roots_by_taylor_are_the_same(root, spectrum):
    """The tied matrix is diagonal: the rule jumps to zero at ties, so eigenvalues must be tied to the last bit."""
    A = torch.diag(SPECTRA[spectrum](5).double()) if spectrum == "tied" else _matrix(spectrum, 5)
    A.requires_grad_()
    results = []
    for method in (sg.Taylor(), _Ordinary()):
        S = root(A, method=method)
        (first,) = torch.autograd.grad(S, A, _cotangent(A), create_graph=True)
        results.append((first, *torch.autograd.grad(first.square().sum(), A)))
    for short, general in zip(*results, strict=True):
        _close(short, general, 64 * torch.finfo(A.dtype).eps)  # the condition of these spectra is at most 5, cubed


@pytest.mark.parametrize("root", ROOTS)
def test_roots_by_taylor_in_transforms_and_compiled(root):
    A = torch.stack([_matrix("distinct", 4), _matrix("tied", 4)])

    def loss(A):
        return root(A, method="svd-taylor").square().sin().sum()

    leaf = A.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    assert_close(torch.func.grad(loss)(A), expected)
    assert_close(torch.func.vmap(torch.func.grad(loss))(A), expected)
    assert_close(torch.func.jacfwd(loss)(A), expected)
    compiled = torch.compile(lambda A: root(A, method="svd-taylor"), backend="aot_eager", fullgraph=True)
    assert_close(torch.autograd.grad(compiled(leaf).square().sin().sum(), leaf)[0], expected)


def test_a_batch_of_cotangents_of_a_root_by_taylor():
    A = _matrix("distinct", 3).requires_grad_()
    S = sg.matrix_inv_sqrt(A, method="svd-taylor")
    G = torch.eye(9, dtype=A.dtype).unflatten(-1, (3, 3))
    (together,) = torch.autograd.grad(S, A, G, is_grads_batched=True, retain_graph=True)
    assert_close(together, torch.stack([torch.autograd.grad(S, A, g, retain_graph=True)[0] for g in G]))


@pytest.mark.parametrize("method", ["svd-taylor:clamp=2", sg.Taylor(faithful=True)], ids=str)
def test_other_forms_of_taylor_are_obeyed(method):
    A = _matrix("tied", 4).requires_grad_()
    own = sg.rules.resolve(method, "sqrt")
    same = _Ordinary(own.degree, own.faithful, own.clamp)
    short, general = (sg.matrix_sqrt(A, method=m) for m in (method, same))
    assert torch.equal(short, general)
    assert torch.equal(*(torch.autograd.grad(S, A, _cotangent(A))[0] for S in (short, general)))


@pytest.mark.parametrize("root", ROOTS)
def test_roots_by_taylor_refuse_indefinite_matrices_and_nan(root):
    A = torch.diag(torch.tensor([1.0, -1.0])).requires_grad_()
    with pytest.raises(sg.IndefiniteError, match=root.__name__):
        root(A, method="svd-taylor")
    assert root(A, method="svd-taylor", clamp=True).isfinite().all()
    with pytest.raises(sg.NonFiniteError, match=root.__name__):
        root(torch.full((2, 2), torch.nan, requires_grad=True), method="svd-taylor")


@needs_kernel
@pytest.mark.parametrize("method", ["svd-taylor", _Named()])
def test_a_root_by_taylor_goes_straight_to_the_kernel(method, monkeypatch):
    A = _matrix("distinct", 5, torch.float32).requires_grad_()
    monkeypatch.delattr(Operator, "in_general")
    sg.matrix_inv_sqrt(A, method=method).sum().backward()
    assert A.grad.isfinite().all()


@pytest.mark.parametrize("degree", [2**31 - 1, 2**32, 2**32 + 4])
def test_any_degree_of_taylor(degree):
    """Beyond 32 bits the number of terms must not wrap around."""
    A = _matrix("distinct", 4).requires_grad_()
    expected = torch.autograd.grad(sg.matrix_inv_sqrt(A, method=sg.Taylor(degree=10**6)).sum(), A)
    assert_close(torch.autograd.grad(sg.matrix_inv_sqrt(A, method=sg.Taylor(degree=degree)).sum(), A), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (1, 32, 32), (4, 6, 3), (2, 3, 6), (0, 3, 2), (2, 0, 3)], ids=str)
def test_a_decomposition_by_default_is_the_same(shape, dtype):
    """With the method given, the call does not take the short way."""
    M = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype).requires_grad_()
    results = []
    for factors in (sg.svd(M), sg.svd(M, method="svd-pade")):
        loss = sum(x.abs().sin().sum() for x in factors)
        (general,) = torch.autograd.grad(loss, M, create_graph=True)
        results.append((*factors, general, *torch.autograd.grad(loss, M)))
    assert all(map(torch.equal, *results))


def test_a_decomposition_by_default_in_unusual_calls():
    M = torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    leaf = torch.nn.Parameter(M)
    expected = [x.detach() for x in sg.svd(leaf)]
    assert all(map(torch.equal, sg.svd(M), expected))
    with torch.no_grad():
        assert not any(x.requires_grad for x in sg.svd(leaf))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(map(torch.equal, sg.svd(leaf), expected))
    outputs = sg.svd(leaf)
    with torch.no_grad():
        outputs.U.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(outputs.Vh.sum(), leaf)
    assert torch.autograd.gradgradcheck(lambda M: sg.svd(M).S, M[0].clone().requires_grad_())


@needs_kernel
def test_freed_memory_of_a_cotangent_is_an_error():
    M = torch.randn(3, 3, requires_grad=True)
    S, g = sg.svd(M).S, torch.ones(3)
    g.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="was freed"):
        torch.autograd.grad(S, M, g)


def _shifted(x):
    return torch.tanh(x) + offset


def _shifted_inside(x):
    return (lambda y: torch.tanh(y) + offset)(x)


def _shifted_by_a_module(x):
    return torch.tanh(x) + module.offset


offset, module = 0.0, ModuleType("settings")
module.offset = 0.0


@pytest.mark.parametrize("f", [_shifted, _shifted_inside, _shifted_by_a_module])
def test_what_a_function_of_singular_values_is_at_zero_is_asked_again_if_it_may_have_changed(f, monkeypatch):
    M = torch.randn(3, 2)
    sg.singular_value_function(M, f)
    monkeypatch.setitem(globals(), "offset", 1.0)
    monkeypatch.setattr(module, "offset", 1.0)
    with pytest.raises(sg.ArgumentError, match=r"f\(0\) = 0, got 1"):
        sg.singular_value_function(M, f)


def test_a_function_of_singular_values_must_vanish_at_zero_in_every_type():
    def rounded(x):
        return torch.tanh(x) + 1e-9  # zero up to rounding in float32 only

    for _ in range(2):
        sg.singular_value_function(torch.randn(3, 2), rounded)
        with pytest.raises(sg.ArgumentError, match=r"f\(0\) = 0"):
            sg.singular_value_function(torch.randn(3, 2, dtype=torch.float64), rounded)


def test_a_function_that_torch_cannot_differentiate_is_an_error_as_before():
    M = torch.randn(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        sg.singular_value_function(M, lambda x: torch.tanh(x.detach()))


POINTS = {
    "general": lambda X: X @ torch.tensor([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]], dtype=X.dtype) + 0.1 * X.square(),
    "mirrored": lambda X: X * torch.tensor([1.0, 2.0, -3.0], dtype=X.dtype),
    "planar": lambda X: X * torch.tensor([1.0, 2.0, 0.0], dtype=X.dtype),
    "collinear": lambda X: X * torch.tensor([1.0, 0.0, 0.0], dtype=X.dtype),
    "tied mirror": lambda X: (
        torch.linalg.qr(X - X.mean(-2, keepdim=True))[0] * torch.tensor([1.0, 1, -1], dtype=X.dtype)
    ),
    "zero": torch.zeros_like,
    "tiny": lambda X: 1e-30 * X,
}


@in_turn(
    "points, k",
    product(POINTS, [1, 2, 3, 4]),
    special=[False, True],
    scale=[False, True],
    dtype=[torch.float32, torch.float64],
)
def test_an_alignment_is_the_same_by_numbers_and_by_tensors(points, k, special, scale, dtype):
    """The numbers of few matrices are compared in Python, those of many by operations on tensors."""
    X = torch.randn(10, 3, generator=torch.Generator().manual_seed(3), dtype=dtype)
    if points == "tied mirror":
        X = torch.linalg.qr(X - X.mean(-2, keepdim=True))[0]
    Y = POINTS[points](X)
    leaves = [torch.nn.functional.pad(P, (0, max(0, k - 3)))[None, :, :k].clone().requires_grad_() for P in (X, Y)]
    results = []
    for few in (64, 0):
        with using(Table(few=few)):
            found = sg.procrustes(*leaves, scale=scale, special=special)
            loss = found.rotation.sin().sum() + found.translation.square().sum()
            results.append((*found, *torch.autograd.grad(loss, leaves)))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ordinary_matrices_are_the_same_by_numbers_and_by_tensors(dtype):
    limit = 2.0 ** (21 if dtype == torch.float32 else 170)
    sizes = [0.0, 1.0, limit, 2 * limit, 1 / limit, 0.5 / limit, torch.inf, torch.nan]
    for first in sizes:
        for second in sizes:
            matrices = torch.tensor([[[first, 0.0]], [[-second, 0.0]], [[0.0, second]]], dtype=dtype)
            assert precision.all_ordinary(matrices) == bool(precision._is_ordinary(precision.largest(matrices)).all())


def test_one_alignment_refuses_nan_and_can_be_differentiated_twice():
    X, Y = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).unbind()

    def rotation(X, Y):
        return sg.procrustes(X, Y).rotation

    assert torch.autograd.gradgradcheck(rotation, (X.clone().requires_grad_(), Y.clone().requires_grad_()))
    bad = X.clone()
    bad[2, 1] = torch.nan
    for leaf in (bad, bad.clone().requires_grad_()):
        with pytest.raises(sg.NonFiniteError, match="procrustes"):
            sg.procrustes(leaf, Y)
