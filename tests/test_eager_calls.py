"""The short way of an eager call, and the gradient of ``eigh`` in the kernel, against the general way.

The general way is taken under ``create_graph=True``, whose backward pass consists of differentiable operations.
"""

import threading
import warnings
from dataclasses import dataclass
from itertools import compress

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad import diagnostics, solvers
from spectralgrad.diagnostics import GaugeWarning
from spectralgrad.dispatch.torch_internals import compiles_gradients
from spectralgrad.native import calls as native_calls
from spectralgrad.native import derivative_calls, kernel
from spectralgrad.solvers.decompose.operators import Operator
from spectralgrad.testing import with_spectrum

from .helpers import DECOMPOSERS

GAP_RULES = [name for name in DECOMPOSERS if isinstance(sg.rules.resolve(name, "eigh"), sg.GapMethod)]
needs_kernel = pytest.mark.skipif(kernel() is None, reason="the kernel is not built")
SPECTRA = {
    "distinct": lambda d: torch.linspace(-1, 2, d),
    "negative": lambda d: -torch.linspace(1, 2, d),
    "tied": lambda d: torch.arange(d).div(2, rounding_mode="floor") + 1.0,
    "identity": torch.ones,
    "zero": torch.zeros,
    "graded": lambda d: 10.0 ** -torch.arange(d),
}


def _matrix(spectrum, d, dtype, size=1.0):
    return with_spectrum(SPECTRA[spectrum](d).double() * size, dtype=dtype, seed=d)


def _gradients(A, method, wanted, cotangents):
    """The gradients of eigenvalues, eigenvectors or both in the kernel and by differentiable operations."""
    A = A.detach().requires_grad_()
    outputs = sg.eigh(A, method=method)
    chosen = [name in wanted for name in "wV"]
    outputs, cotangents = (list(compress(x, chosen)) for x in (outputs, cotangents))
    return [
        torch.autograd.grad(outputs, A, cotangents, retain_graph=True, create_graph=general)[0].detach()
        for general in (False, True)
    ]


def _cotangents(A):
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(*A.shape[:-2], A.shape[-1] + 1, A.shape[-1], generator=generator, dtype=torch.float64).to(A.dtype)
    return g[..., 0, :], g[..., 1:, :]


def _agree(fast, general, A):
    """Both are sums of d products of d entries in the eigenbasis; the largest entry determines the rounding error."""
    d, eps = A.shape[-1], torch.finfo(A.dtype).eps
    assert_close(fast, general, rtol=0, atol=8 * d * eps * float(general.abs().max()) + torch.finfo(A.dtype).tiny)


@pytest.mark.parametrize("wanted", ["w", "V", "wV"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 9, 16, 17, 33, 64])
def test_the_gradient_of_the_default_method_is_the_same(d, dtype, wanted):
    A = torch.stack([_matrix("distinct", d, dtype), _matrix("negative", d, dtype), _matrix("tied", d, dtype)])
    fast, general = _gradients(A, "svd-pade", wanted, _cotangents(A))
    for k in range(3):
        _agree(fast[k], general[k], A[k])
    assert torch.equal(fast, fast.mT) or kernel() is None


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("method", GAP_RULES)
def test_the_gradient_of_every_rule_is_the_same(method, spectrum):
    if str(method) == "svd" and spectrum in ("tied", "identity", "zero"):
        pytest.skip("infinite")
    A = _matrix(spectrum, 6, torch.float64)
    _agree(*_gradients(A, method, "wV", _cotangents(A)), A)


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1e18, 1e30])
@pytest.mark.parametrize("spectrum", ["distinct", "tied", "graded"])
def test_the_gradient_is_the_same_at_every_scale(spectrum, size):
    A = _matrix(spectrum, 5, torch.float32, size)
    fast, general = _gradients(A, "svd-pade", "V", _cotangents(A))
    assert fast.isfinite().all()
    _agree(fast, general, A)


def test_nan_and_expanded_cotangents():
    A = _matrix("distinct", 4, torch.float64).requires_grad_()
    w, V = sg.eigh(A)
    (sums,) = torch.autograd.grad(V.sum() + w.sum(), A, retain_graph=True)  # stride 0
    (full,) = torch.autograd.grad((w, V), A, (torch.ones(4).double(), torch.ones(4, 4).double()), retain_graph=True)
    assert torch.equal(sums, full)
    (bad,) = torch.autograd.grad(V, A, torch.full((4, 4), torch.nan, dtype=torch.float64))
    assert bad.isnan().all()


@needs_kernel
def test_the_kernel_computes_the_gradient_in_one_call(monkeypatch):
    calls = []
    for module in (native_calls, derivative_calls):
        monkeypatch.setattr(module, "checked", lambda name, status: calls.append(name) or status)
    monkeypatch.delattr(Operator, "in_general")
    A = _matrix("distinct", 5, torch.float32).expand(4, 5, 5).clone().requires_grad_()
    sg.eigh(A).eigenvectors.sum().backward()
    assert calls == ["eigh", "eigh_gradient"]


@dataclass(frozen=True)
class _Doubled(sg.Pade):
    name, summary, reference = "doubled", "twice the gradient", "this test"

    def weighed(self, K, coupling):
        return 2 * super().weighed(K, coupling)


@dataclass(frozen=True)
class _Wider(sg.Pade):
    name, summary, reference = "wider", "other gaps", "this test"

    def gaps(self, w):
        return 3 * super().gaps(w)


@dataclass(frozen=True)
class _Shifted(sg.Pade):
    name, summary, reference = "shifted", "another decomposition", "this test"

    def decompose(self, A, operation):
        w, V = super().decompose(A, operation)
        return w + 1, V


@pytest.mark.parametrize("method", [_Doubled(), _Wider()], ids=str)
def test_a_rule_that_changes_the_formula_is_obeyed(method):
    A = _matrix("distinct", 4, torch.float64)
    fast, general = _gradients(A, method, "V", _cotangents(A))
    plain, _ = _gradients(A, "svd-pade", "V", _cotangents(A))
    _agree(fast, general, A)
    _agree(fast, plain * (2 if isinstance(method, _Doubled) else 3), A)


def test_a_rule_with_its_own_decomposition_is_obeyed_without_gradient():
    A = torch.eye(3)
    assert_close(sg.eigh(A, method=_Shifted()).eigenvalues, torch.full((3,), 2.0))
    assert_close(sg.eigh(A, method="svd-taylor:clamp=2").eigenvalues, torch.full((3,), 2.0))


def test_a_change_in_place_is_noticed():
    A = _matrix("distinct", 4, torch.float64).requires_grad_()
    for changed in range(2):
        outputs = sg.eigh(A)
        with torch.no_grad():
            outputs[changed].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(outputs, A, [torch.ones_like(x) for x in outputs])


def test_results_share_no_memory():
    A = _matrix("distinct", 4, torch.float64)
    kept = A.clone()
    first, second = sg.eigh(A), sg.eigh(A)
    expected = [x.clone() for x in second]
    for x in first:
        x.zero_()
    assert torch.equal(A, kept)
    assert all(map(torch.equal, second, expected))


def test_second_derivatives_and_repeated_backward_passes():
    A = _matrix("distinct", 4, torch.float64).requires_grad_()

    def f(A):
        w, V = sg.eigh((A + A.mT) / 2)
        return w, V.square()

    assert torch.autograd.gradcheck(f, A)
    assert torch.autograd.gradgradcheck(f, A)
    w, V = sg.eigh(A)
    loss = (V.square() * w).square().sum()
    first = torch.autograd.grad(loss, A, retain_graph=True)[0]
    general = torch.autograd.grad(loss, A, create_graph=True)[0]
    again = torch.autograd.grad(loss, A)[0]
    assert torch.equal(first, again)
    _agree(first, general.detach(), A)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, A)


def test_hooks_see_and_change_gradients():
    A = _matrix("distinct", 3, torch.float64).requires_grad_()
    _w, V = sg.eigh(A)
    seen = []
    V.register_hook(lambda g: 2 * g)
    A.register_hook(seen.append)
    g = _cotangents(A)[1]
    (doubled,) = torch.autograd.grad(V, A, g)
    plain, _ = _gradients(A, "svd-pade", "V", _cotangents(A))
    assert torch.equal(seen[0], doubled)
    assert_close(doubled, 2 * plain, rtol=1e-14, atol=0)


def test_a_gradient_that_is_not_requested():
    A = _matrix("distinct", 3, torch.float64)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            w, V = sg.eigh(A.clone().requires_grad_())
        assert not w.requires_grad
        assert not V.requires_grad
        assert_close(w, sg.eigh(A).eigenvalues, rtol=0, atol=0)


def test_calls_are_counted_once_and_bad_input_is_refused():
    solvers.reset_report()
    sg.eigh(torch.eye(3).expand(5, 3, 3))
    assert (solvers.report().calls, solvers.report().matrices) == (1, 5)
    with pytest.raises(sg.NonFiniteError):
        sg.eigh(torch.full((3, 3), torch.nan))
    for bad in (torch.ones(2, 3), torch.ones(3), torch.ones(3, 3, dtype=torch.int64), [[1.0]]):
        with pytest.raises(sg.ShapeError):
            sg.eigh(bad)
    assert sg.eigh(torch.empty(0, 3, 3)).eigenvectors.shape == (0, 3, 3)
    assert sg.eigh(torch.empty(2, 0, 0)).eigenvalues.shape == (2, 0)


@needs_kernel
@pytest.mark.parametrize("function", [sg.eigh, sg.eigvalsh, sg.svd, sg.matrix_sqrt, sg.matrix_inv_sqrt])
def test_freed_memory_is_an_error(function):
    A = torch.eye(3)
    A.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="storage was freed"):
        function(A)
    assert function(torch.empty(0, 3, 3)) is not None


def test_views_and_parameters():
    A = torch.randn(6, 6, dtype=torch.float64)
    A = A + A.mT
    part = A[::2, ::2]
    assert not part.is_contiguous()
    assert_close(sg.eigh(part).eigenvalues, torch.linalg.eigvalsh(part), rtol=1e-12, atol=1e-12)
    w, _ = sg.eigh(torch.nn.Parameter(A, requires_grad=False))
    assert type(w) is torch.Tensor
    assert sg.eigh(torch.nn.Parameter(A)).eigenvalues.requires_grad


def test_gauge_warnings_reach_the_fast_backward():
    A = torch.eye(3, requires_grad=True)
    with diagnostics.gauge_warnings(), pytest.warns(GaugeWarning):
        sg.eigh(A).eigenvectors[0, 1].backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sg.eigh(A).eigenvectors[0, 1].backward()


def test_autocast_changes_nothing():
    A = _matrix("distinct", 8, torch.float32).requires_grad_()
    g = _cotangents(A)
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            outputs = sg.eigh(A)
            results.append((*outputs, torch.autograd.grad(outputs, A, g)[0]))
    assert all(map(torch.equal, *results))


def test_threads_do_not_disturb_each_other():
    inputs = [_matrix("distinct", d, torch.float32) for d in (3, 8, 17, 33)]
    expected = [_gradients(A, "svd-pade", "wV", _cotangents(A))[0] for A in inputs]
    wrong = []

    def work(k):
        for _ in range(20):
            A = inputs[k].clone().requires_grad_()
            outputs = sg.eigh(A)
            if not torch.equal(torch.autograd.grad(outputs, A, _cotangents(A))[0], expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@dataclass(frozen=True)
class _Shared(sg.GapMethod):
    """One gap matrix for the whole batch, possibly of another type than the input."""

    name, summary, reference = "shared", "one matrix for all", "none"
    wide: bool = False

    def gaps(self, w):
        ones = torch.ones(w.shape[-1], w.shape[-1], dtype=torch.float64 if self.wide else w.dtype)
        return ones.triu(1) - ones.tril(-1)


def _cubes(decomposition, A, method):
    vectors = decomposition(A, method=method)
    return (vectors[-1] ** 3).sum()


@pytest.mark.parametrize("decomposition", [sg.eigh, sg.svd])
def test_the_kernel_reads_no_gap_matrix_of_another_shape_or_type(decomposition):
    X = torch.randn(50, 6, 6, generator=torch.Generator().manual_seed(0))
    A = (X + X.mT).requires_grad_()
    loss = _cubes(decomposition, A, _Shared())
    (fused,) = torch.autograd.grad(loss, A, retain_graph=True)
    (formula,) = torch.autograd.grad(loss, A, create_graph=True)
    assert_close(fused, formula.detach(), rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match=r"[Dd]ouble"):  # as torch says of products of two types
        torch.autograd.grad(_cubes(decomposition, A, _Shared(wide=True)), A)


@pytest.mark.parametrize("decomposition", [sg.eigh, sg.svd])
def test_the_kernel_reads_no_saved_tensors_of_another_type(decomposition):
    A = torch.stack([with_spectrum([1.0, 2, 4], dtype=torch.float32, seed=seed) for seed in range(5)]).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.double(), lambda x: x):
        loss = _cubes(decomposition, A, "svd-pade")
    with pytest.raises(RuntimeError, match=r"[Dd]ouble|dtype|same type"):
        torch.autograd.grad(loss, A)


@pytest.mark.parametrize("decomposition", [sg.eigh, sg.svd])
def test_the_input_of_a_compiled_gradient_may_go_straight_into_a_decomposition(decomposition):
    def loss(A):
        factors = decomposition(A)
        return sum(factor.abs().sin().sum() for factor in factors)

    A = torch.stack([with_spectrum([1.0, 2, 4], seed=seed) for seed in range(5)])
    compiled = torch.compile(torch.func.grad(loss), backend="aot_eager", fullgraph=compiles_gradients)
    assert_close(compiled(A), torch.func.grad(loss)(A))
