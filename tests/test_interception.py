"""Whatever records or intercepts calls sees the operators, never the fast path behind them.

A recording made with one input is run with another: what was recorded past the operators would be uninitialised memory.
"""

import inspect
import io
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import spectralgrad as sg
from spectralgrad import solvers
from spectralgrad.dispatch import function, torch_internals
from spectralgrad.native import calls, derivative_calls, kernel
from spectralgrad.native.functions import in_memory
from spectralgrad.solvers.decompose.operators import Operator
from spectralgrad.testing import with_spectrum

from . import kernel_calls
from .features import needs
from .helpers import FUNCTIONAL, in_turn

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit:DeprecationWarning",
    "ignore:.*torch.jit:FutureWarning",
    "ignore::torch.jit.TracerWarning",
)


def _unrolled(method):
    """The method by name; power iteration with few steps, since recorders take their time over each."""
    return sg.PI(iterations=3) if method == "pi" else method


def _roots(method):
    return lambda A: sg.matrix_sqrt(A, method=method)


def _gradient_of_root(method):
    def gradient(A):
        A = A.detach().requires_grad_()
        return torch.autograd.grad(sg.matrix_inv_sqrt(A, method=method).square().sum(), A)[0]

    return gradient


CALLS = {
    "eigenvalues": lambda A: sg.eigh(A)[0],
    "projector": lambda A: sg.spectral_projector(A, 2),
    "singular values": lambda A: sg.svd(A)[1],
    "log": lambda A: sg.matrix_log(A),
    "exp": lambda A: sg.matrix_exp(A),
    "power": lambda A: sg.matrix_power(A, 0.3),
    "function": lambda A: sg.matrix_function(A, torch.tanh),
    "inv_sqrt": lambda A: sg.matrix_inv_sqrt(A),
    "polar": lambda A: sg.polar(A),
    "covariance_sqrt": lambda A: sg.covariance_sqrt(A[..., :3]),
    **{f"sqrt {method}": _roots(_unrolled(method)) for method in FUNCTIONAL},
}
# One call for each way through the code, where a recorder takes its time.
WAYS = [call for call in CALLS if call not in ("log", "exp", "power", "sqrt svd-clip", "sqrt svd-trunc", "sqrt masked")]
GRADIENTS = {f"gradient {method}": _gradient_of_root(_unrolled(method)) for method in FUNCTIONAL}


def _matrices(dtype=torch.float64, size=1.0):
    return size * torch.stack([with_spectrum([0.5, 1.0, 2.0, 3.0, 4.0], dtype=dtype, seed=s) for s in range(6)])


class _PassOn(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(str(func))
        return func(*args, **(kwargs or {}))

    def __init__(self):
        super().__init__()
        self.seen = set()


def _exported(strict):
    def record(f, A):
        class Network(nn.Module):
            def forward(self, A):
                return f(A)

        return torch.export.export(Network(), (A,), strict=strict).module()

    return record


def _functionalized(f, A):
    """The functional tensors of torch's C++ side, which ahead-of-time compilers record with."""

    def functional(A):
        torch._enable_functionalization(reapply_views=True)
        try:
            return torch._from_functional_tensor(f(torch._to_functional_tensor(A)))
        finally:
            torch._disable_functionalization()

    return functional


RECORDERS = {
    "jit.trace": lambda f, A: torch.jit.trace(f, (A,), check_trace=False),
    "make_fx real": lambda f, A: make_fx(f)(A),
    "make_fx fake": lambda f, A: make_fx(f, tracing_mode="fake")(A),
    "make_fx symbolic": lambda f, A: make_fx(f, tracing_mode="symbolic")(A),
    "make_fx real pre-dispatch": lambda f, A: make_fx(f, pre_dispatch=True)(A),
    "make_fx fake pre-dispatch": lambda f, A: make_fx(f, tracing_mode="fake", pre_dispatch=True)(A),
    "functionalize": _functionalized,
    "export": _exported(False),
    "export strict": _exported(True),
}


@in_turn("call", WAYS, recorder=[r for r in RECORDERS if r != "export strict"])
def test_a_recording_computes_anew(call, recorder):
    f, A = CALLS[call], _matrices()
    recorded = RECORDERS[recorder](f, A)
    other = _matrices(size=2.0) + torch.eye(5)
    assert_close(recorded(other), f(other), rtol=1e-12, atol=1e-12)


def test_the_transform_functionalize_is_refused_by_torch_and_not_recorded_wrongly():
    with pytest.raises(RuntimeError, match="Functionalize rule"):
        torch.func.functionalize(sg.matrix_inv_sqrt)(_matrices())


@pytest.mark.parametrize("call", ["eigenvalues", "inv_sqrt", "sqrt svd-taylor", "covariance_sqrt", "polar"])
def test_a_strict_export_computes_anew(call):
    test_a_recording_computes_anew(call, "export strict")


@in_turn("call", GRADIENTS, recorder=["make_fx real", "make_fx fake", "make_fx symbolic"])
def test_a_recorded_gradient_computes_anew(call, recorder):
    f, A = GRADIENTS[call], _matrices()
    recorded = RECORDERS[recorder](f, A)
    other = _matrices(size=2.0) + torch.eye(5)
    assert_close(recorded(other), f(other), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("call", CALLS)
def test_a_traced_call_can_be_saved_and_loaded(call):
    f, A = CALLS[call], _matrices()
    traced = torch.jit.trace(f, (A,), check_trace=False)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    other = _matrices(size=2.0)
    assert_close(torch.jit.load(file)(other), f(other), rtol=1e-12, atol=1e-12)


LAYERS = {
    "whitening": lambda: sg.nn.DecorrelatedBatchNorm2d(8, groups=2),
    "denoising": lambda: sg.nn.PCADenoising2d(8, keep=3),
    "pooling": lambda: sg.nn.CovariancePooling(8),
    "pooling from positions": lambda: sg.nn.CovariancePooling(8, side="positions"),
    "newton-schulz": lambda: sg.nn.CovariancePooling(8, method="newton-schulz"),
    "coloring": lambda: sg.nn.WhiteningColoring2d(groups=2),
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("recorder", ["jit.trace", "make_fx real", "make_fx real pre-dispatch"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_recorded_layer_computes_anew(layer, recorder, training):
    network = nn.Sequential(nn.Conv2d(3, 8, 3), LAYERS[layer]()).double()
    if layer == "coloring":
        coloring = network[1]
        network = _Transfer(network[0], coloring)
    X, other = torch.randn(2, 6, 3, 5, 5, dtype=torch.float64).unbind()
    with torch.no_grad():
        network(X)  # running statistics
        network.train(training)
        recorded = RECORDERS[recorder](network, X)
        assert_close(recorded(other), network(other), rtol=1e-10, atol=1e-10)


class _Transfer(nn.Module):
    def __init__(self, encoder, layer):
        super().__init__()
        self.encoder, self.layer = encoder, layer

    def forward(self, X):
        features = self.encoder(X)
        return self.layer(features, features.flip(0))


def test_a_traced_layer_that_learns_computes_anew():
    network = nn.Sequential(nn.Conv2d(3, 8, 3), sg.nn.CovariancePooling(8)).double()
    X, other = torch.randn(2, 2, 3, 5, 5, dtype=torch.float64).unbind()
    traced = torch.jit.trace(network, (X,), check_trace=False)
    assert_close(traced(other), network(other), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("call", CALLS | GRADIENTS)
def test_fake_tensors_come_back_fake(call):
    f = (CALLS | GRADIENTS)[call]
    expected = f(_matrices())
    with FakeTensorMode():
        result = f(torch.empty(6, 5, 5, dtype=torch.float64))
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    assert result.stride() == expected.stride()


@pytest.mark.parametrize("call", CALLS | GRADIENTS)
def test_meta_tensors_come_back_meta(call):
    f = (CALLS | GRADIENTS)[call]
    result = f(torch.empty(6, 5, 5, dtype=torch.float64, device="meta"))
    assert result.is_meta
    assert result.shape == f(_matrices()).shape


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_take_meta_tensors(layer):
    network = LAYERS[layer]().to("meta").train()
    X = torch.empty(6, 8, 3, 3, device="meta")
    assert (network(X, X) if layer == "coloring" else network(X)).is_meta


@pytest.mark.parametrize("call", CALLS)
def test_a_dispatch_mode_sees_the_operator(call):
    with _PassOn() as mode:
        result = CALLS[call](_matrices())
    assert any(name.startswith("spectralgrad.") for name in mode.seen)
    assert_close(result, CALLS[call](_matrices()), rtol=1e-12, atol=1e-12)


def test_a_function_mode_takes_calls_over():
    class Count(TorchFunctionMode):
        names = ()

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names = (*self.names, getattr(func, "__name__", "?"))
            return func(*args, **(kwargs or {}))

    with Count() as mode:
        sg.eigh(torch.eye(2))
    assert "eigh" in mode.names


PUBLIC = [name for name in sg.__all__ if inspect.isfunction(getattr(sg, name)) and "method" not in name]


@pytest.mark.parametrize("name", PUBLIC)
def test_tensor_like_arguments_are_handed_over(name):
    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func, args, kwargs

    like = Like()
    function = getattr(sg, name)
    assert function(like, 2, extra=3) == (function, (like, 2), {"extra": 3})


def test_a_subclass_without_its_own_protocol_stays_what_it_is():
    class Kind(torch.Tensor):
        pass

    w, V = sg.eigh(torch.eye(3).as_subclass(Kind))
    assert type(w) is type(V) is Kind


@pytest.mark.parametrize("name", PUBLIC)
def test_torchscript_is_told_what_to_do(name):
    function = getattr(sg, name)

    def caller(A: torch.Tensor):
        return function(A)

    with pytest.raises(RuntimeError, match=f"spectralgrad.{name} cannot be compiled by TorchScript.*torch.jit.ignore"):
        torch.jit.script(caller)


FLAGGED = {
    "negative": lambda A: torch.complex(A, -A).conj().imag,  # values A, memory -A
    "zero": lambda A: torch._efficientzerotensor(A.shape, dtype=A.dtype),
    "conjugate": lambda A: torch.complex(A, A - A.mT).mH,
    "complex zero": lambda A: torch._efficientzerotensor(A.shape, dtype=torch.complex128),
}


@in_turn("call", CALLS, flag=FLAGGED)
def test_values_count_and_not_what_lies_in_memory(call, flag):
    A = FLAGGED[flag](_matrices())
    if call == "log" and "zero" in flag:
        assert not CALLS[call](A).any()
        return
    settled = torch.empty_like(A, memory_format=torch.contiguous_format).copy_(A)
    assert_close(CALLS[call](A), CALLS[call](settled), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("flag", ["negative", "zero"])
def test_cotangents_count_by_value_too(flag):
    G = FLAGGED[flag](_matrices())
    for method in FUNCTIONAL:
        grads = []
        for cotangent in (G, G.clone() + 0):
            A = _matrices().requires_grad_()
            grads.append(torch.autograd.grad(sg.matrix_sqrt(A, method=method), A, cotangent)[0])
        assert_close(*grads, rtol=0, atol=0)


@pytest.mark.skipif(kernel() is None, reason="the kernel is not built")
@pytest.mark.parametrize("flag", ["negative", "zero"])
def test_the_kernel_itself_resolves_views(flag):
    A = FLAGGED[flag](_matrices())
    assert_close(kernel_calls.calls().eigh(A)[0], torch.linalg.eigvalsh(A), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(kernel() is None, reason="the kernel is not built")
def test_the_kernel_refuses_tensors_without_memory():
    with pytest.raises(RuntimeError, match="has no memory"):
        in_memory(torch.empty(2, 3, 3, device="meta"))


def _gradient_of(decomposition):
    def gradient(A):
        A = A.detach().requires_grad_()
        return torch.autograd.grad(sum(factor.sum() for factor in decomposition(A)), A)[0]

    return gradient


KERNEL_CALLS = {
    **CALLS,
    **GRADIENTS,
    "gradient of eigh": _gradient_of(sg.eigh),
    "gradient of svd": _gradient_of(sg.svd),
}


@pytest.mark.parametrize("call", KERNEL_CALLS)
def test_every_call_of_the_kernel_starts_in_an_operator_or_behind_the_guard(call, monkeypatch):
    inside, answers, seen = [], [], []
    run, intercepted = Operator.in_general, function.intercepted

    def enter(self, *args, **kwargs):
        inside.append(self)
        try:
            return run(self, *args, **kwargs)
        finally:
            inside.pop()

    def ask(*tensors, **options):
        answers.append(intercepted(*tensors, **options))
        return answers[-1]

    def checked(name, status):
        assert inside or answers[-1:] == [False], "the kernel was called outside an operator, and nothing was asked"
        answers.clear()
        seen.append(name)
        return status

    monkeypatch.setattr(Operator, "in_general", enter)
    for module in (calls, derivative_calls):
        monkeypatch.setattr(module, "checked", checked)  # every call of a C function ends with it
    monkeypatch.setattr(function, "intercepted", ask)
    KERNEL_CALLS[call](_matrices(torch.float32))
    assert seen or kernel() is None or call not in ("sqrt exact", "inv_sqrt exact", "eigh")


OPERATORS = {name: value for name, value in vars(solvers).items() if isinstance(value, Operator)}
ARGUMENTS = {
    "eigh": lambda A: (A,),
    "eigvalsh": lambda A: (A,),
    "pencil_eigh": lambda A: (A, torch.eye(A.shape[-1], dtype=A.dtype).expand_as(A)),
    "pencil_eigvalsh": lambda A: (A, torch.eye(A.shape[-1], dtype=A.dtype).expand_as(A)),
    "svd": lambda A: (A[..., :3],),
    "svdvals": lambda A: (A[..., :3],),
    "root_and_eigenpairs": lambda A: (A, "matrix_sqrt", False, -1.0, False),
    "root_derivative": lambda A: (*_root_of(A), A, True, 10),
    "function_derivative": lambda A: (_root_of(A)[0], A.real.abs(), A),
    "polar_factors": lambda A: (A,),
    "schur": lambda A: (A, "schur"),
    "triangular_sylvester": lambda A: (A.triu(), A.triu(), A, "triangular_sylvester", False),
    "rotations": lambda A: (A,),
    "split_eigenvalues": lambda A: (_one_group(A), A),
    "split_singular_values": lambda A: (_one_group(A), *torch.linalg.svd(A)[::2], A),
    "inverse_root": lambda A: (A, "inverse_root", 4.0, 1e-3, False, -1.0, False),
}


def _arguments(name, A):
    assert name in ARGUMENTS, f"add an example of the arguments of the operator {name} to ARGUMENTS in this file"
    return ARGUMENTS[name](A)


def _one_group(A):
    return torch.zeros(A.shape[:-1], dtype=torch.int64)


def _root_of(A):
    _, s, V = solvers.root_and_eigenpairs(A, "matrix_sqrt", False, -1.0, False)
    return V, s


@pytest.mark.parametrize("shape", [(6, 5, 5), (5, 5), (0, 3, 3), (2, 0, 0), (3, 1, 1)], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_keep_what_their_shape_rules_promise(name, shape):
    """Schema, and shapes, types and strides of fake results against real ones, on empty input too."""
    A = torch.eye(shape[-1], dtype=torch.float64).expand(shape).contiguous() * 2
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(OPERATORS[name].operator, _arguments(name, A), test_utils=tests)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_have_a_vmap_rule(name):
    arguments = _arguments(name, _matrices())
    dims = tuple(0 if isinstance(x, torch.Tensor) else None for x in arguments)
    results = torch.vmap(OPERATORS[name].operator, in_dims=dims)(*arguments)
    expected = OPERATORS[name](*arguments)
    results, expected = ((x,) if isinstance(x, torch.Tensor) else x for x in (results, expected))
    for one, other in zip(results, expected, strict=True):
        assert_close(one.abs(), other.abs(), rtol=1e-10, atol=1e-10)


@needs("the tag for CUDA graphs")
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_stay_out_of_cuda_graphs(name):
    assert torch.Tag.cudagraph_unsafe in OPERATORS[name].operator.tags


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_a_packaged_layer_computes_the_same():
    """torch.package with spectralgrad left outside, as torch itself is."""
    layer, X = sg.nn.CovariancePooling(4, reduce_to=3), torch.randn(2, 4, 5, 5)
    file = io.BytesIO()
    with torch.package.PackageExporter(file) as exporter:
        exporter.extern(["spectralgrad.**", "torch.**", "collections"])
        exporter.save_pickle("network", "layer.pkl", layer)
    file.seek(0)
    loaded = torch.package.PackageImporter(file).load_pickle("network", "layer.pkl")
    assert_close(loaded(X), layer(X))


PRIVATE = {
    "_keys_of": torch_internals,  # looked up at import
    "_keys_of_thread": torch_internals,
    "DispatchKeySet": torch._C,
    "_len_torch_function_stack": torch._C,
}


@pytest.mark.parametrize("name", PRIVATE)
def test_without_a_private_name_calls_go_through_the_operators(name, monkeypatch):
    A = _matrices()
    expected = sg.matrix_inv_sqrt(A)
    torch_internals._extraordinary_keys.cache_clear()
    if PRIVATE[name] is torch_internals:
        monkeypatch.setattr(torch_internals, name, None)
    else:
        monkeypatch.delattr(PRIVATE[name], name)
    assert not function.eager(A)
    assert_close(sg.matrix_inv_sqrt(A), expected, rtol=1e-12, atol=1e-12)
    torch_internals._extraordinary_keys.cache_clear()


OTHERS = {
    "peek_interpreter_stack": torch._C._functorch,
    "is_batchedtensor": torch._C._functorch,
    "TransformType": torch._C._functorch,
    "forward_ad": torch_internals,  # torch's own code needs the name in it
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("call", ["sqrt exact", "log", "polar", "function", "sqrt svd-taylor"])
def test_without_other_private_names_gradients_are_the_same(call, name, monkeypatch):
    def gradient():
        A = _matrices().requires_grad_()
        return torch.autograd.grad(CALLS[call](A).square().sum(), A)[0]

    expected = gradient()
    if name == "forward_ad":
        monkeypatch.setattr(torch_internals, name, SimpleNamespace())
    else:
        monkeypatch.delattr(OTHERS[name], name)
    assert torch_internals.in_forward_mode() == (name == "forward_ad")
    assert torch_internals.in_transform() == (name == "peek_interpreter_stack")
    assert_close(gradient(), expected, rtol=1e-12, atol=1e-12)


def test_an_ordinary_call_goes_past_the_dispatcher():
    assert function.eager(_matrices(), nn.Parameter(torch.eye(2)))
    with torch.inference_mode():
        assert function.eager(_matrices())


@pytest.mark.parametrize("method", ["exact", "newton-schulz", "svd-pade"])
def test_an_ordinary_network_is_traced_checked_and_saved(method, tmp_path):
    """With parameters that require a gradient, and with the check that torch.jit.trace makes by default."""
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), sg.nn.CovariancePooling(8, method=method)).eval()
    X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    traced = torch.jit.trace(network, X)
    traced.save(str(tmp_path / "network.pt"))
    again = torch.jit.load(str(tmp_path / "network.pt"))
    for x in (X, 2 * X + 1):
        assert_close(again(x), network(x))
