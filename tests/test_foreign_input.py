"""Input that cannot be computed with is refused in words: foreign layouts and types, exponents, functions, names."""

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg

from .helpers import FUNCTIONS

VERBS = {
    **FUNCTIONS,
    "eigh": sg.eigh,
    "svd": sg.svd,
    "spectral_projector": lambda A: sg.spectral_projector(A, 2),
    "polar": sg.polar,
    "covariance": sg.covariance,
    "covariance_sqrt": sg.covariance_sqrt,
}

FOREIGN = {
    "sparse": (lambda A: A.to_sparse(), r"got layout torch.sparse_coo; call to_dense\(\) first"),
    "csr": (lambda A: A.to_sparse_csr(), r"got layout torch.sparse_csr; call to_dense\(\) first"),
    "mkldnn": (lambda A: A.to_mkldnn(), r"got layout torch._mkldnn; call to_dense\(\) first"),
    "nested": (lambda A: torch.nested.nested_tensor([A, A]), "got a nested tensor; use torch.nested.to_padded_tensor"),
    "jagged": (
        lambda A: torch.nested.nested_tensor([A, A], layout=torch.jagged),
        "got a nested tensor; use torch.nested.to_padded_tensor",
    ),
    "float8": (lambda A: A.to(torch.float8_e4m3fn), "got torch.float8_e4m3fn; convert it to bfloat16, float16"),
    "quantised": (lambda A: torch.quantize_per_tensor(A, 0.1, 0, torch.quint8), "got torch.quint8"),
}
_TORCH_WARNS = pytest.mark.filterwarnings(
    "ignore:Sparse CSR tensor support is in beta:UserWarning",
    "ignore:The PyTorch API of nested tensors is in prototype:UserWarning",
    "ignore:.*[Qq]uantiz:DeprecationWarning",
    "ignore:.*[Qq]uantiz:UserWarning",
)


@_TORCH_WARNS
@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("name", VERBS)
def test_layouts_and_types_that_cannot_be_computed_with(name, kind):
    make, message = FOREIGN[kind]
    with pytest.raises(sg.ShapeError, match=f"expected a .*tensor, {message}"):
        VERBS[name](make(torch.eye(3)))


@_TORCH_WARNS
@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize(
    "layer", [sg.nn.DecorrelatedBatchNorm1d(2), sg.nn.CovariancePooling(2), sg.nn.WhiteningColoring2d()], ids=str
)
def test_layers_refuse_them_by_name(layer, kind):
    make, message = FOREIGN[kind]
    with pytest.raises(sg.ShapeError, match=f"{type(layer).__name__}(, content)?: expected a .*tensor, {message}"):
        layer(make(torch.rand(3, 2)))


@pytest.mark.parametrize("shape", [(3,), (4,), (2, 1, 2), (5, 2)], ids=str)
def test_exponents_that_do_not_broadcast(shape):
    A = torch.eye(3).expand(4, 2, 3, 3)
    message = r"expected a real p that broadcasts against the batch \(4, 2\), got torch.float32 of shape"
    with pytest.raises(sg.ShapeError, match=message):
        sg.matrix_power(A, torch.full(shape, 0.3))


def test_exponents_that_broadcast():
    A, p = 4 * torch.eye(3).expand(4, 2, 3, 3), torch.tensor([[0.5], [1.0], [1.5], [-1.0]])
    assert_close(sg.matrix_power(A, p)[..., 0, 0], (4**p).expand(4, 2))
    with pytest.raises(sg.ShapeError, match=r"expected a real p .* got torch.complex64"):
        sg.matrix_power(A, torch.tensor(1j))


NOT_ELEMENTWISE = {
    "a sum": (lambda x: x.sum(), r"got shape \(\) for eigenvalues of shape \(2, 3\)"),
    "a number": (lambda x: 1.0, "got float for eigenvalues"),
    "more entries": (lambda x: torch.stack([x, x]), r"got shape \(2, 2, 3\)"),
    "a softmax": (lambda x: x.softmax(-1), "among others and .* for it alone"),
    "a share": (lambda x: x / x.sum(), "among others and .* for it alone"),
    "weights for the entries": (lambda x: x * torch.tensor([1.0, 2.0, 3.0]), "among others and .* for it alone"),
    "weights for the batch": (lambda x: x * torch.tensor([[1.0], [2.0]]), "among others and .* for it alone"),
}


@pytest.mark.parametrize("method", ["exact", "svd-taylor"])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("case", NOT_ELEMENTWISE)
def test_functions_that_are_not_elementwise(case, gradient, method):
    f, message = NOT_ELEMENTWISE[case]
    A = torch.diag_embed(torch.tensor([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])).requires_grad_(gradient)
    with pytest.raises(sg.ArgumentError, match=f"matrix_function: expected f to be elementwise, .*{message}"):
        sg.matrix_function(A, f, method=method)


def test_a_derivative_that_is_not_elementwise():
    A = torch.diag(torch.tensor([1.0, 2.0, 3.0])).requires_grad_()
    with pytest.raises(sg.ArgumentError, match="matrix_function: expected df to be elementwise"):
        sg.matrix_function(A, torch.tanh, lambda x: x.sum())


def test_an_unknown_operation_lists_the_known_ones():
    with pytest.raises(sg.MethodError, match=r"expected an operation from eigh, exp, function, .*, got 'foo'"):
        sg.methods("foo")


@pytest.mark.parametrize("name", ["svd_taylor", "SVD-Taylor", "svd-tailor", "SVD Taylor", "svd_taylor:degree=3"])
def test_a_misspelt_method_gets_a_suggestion(name):
    with pytest.raises(sg.MethodError, match=r"Did you mean 'svd-taylor'\?$"):
        sg.eigh(torch.eye(2), method=name)


TORCH_ERRORS = {
    "NonFiniteError": torch.linalg.LinAlgError,
    "IndefiniteError": torch.linalg.LinAlgError,
    "SolverError": torch.linalg.LinAlgError,
    "ArgumentError": RuntimeError,
    "ShapeError": RuntimeError,
}


@pytest.mark.parametrize("name", TORCH_ERRORS)
def test_errors_are_those_that_torch_would_raise(name):
    """Code that catches what torch.linalg raises catches ours, and what caught ours goes on to do so."""
    error = getattr(sg, name)
    assert issubclass(error, TORCH_ERRORS[name])
    assert issubclass(error, RuntimeError)
    assert name == "SolverError" or issubclass(error, ValueError)


def test_code_around_torch_catches_our_errors():
    with pytest.raises(torch.linalg.LinAlgError):
        sg.eigh(torch.full((2, 2), torch.nan))
    for decompose in (torch.linalg.eigh, sg.eigh):
        with pytest.raises(RuntimeError):
            decompose(torch.eye(3)[:2])


@pytest.mark.parametrize(
    "f", [lambda x: torch.cumsum(x, -1), lambda x: x * torch.arange(1, x.shape[-1] + 1), lambda x: x - x.min()]
)
def test_functions_that_look_elementwise_at_the_first_entry_only(f):
    A = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    with pytest.raises(sg.ArgumentError, match="elementwise"):
        sg.matrix_function(A, f)


@pytest.mark.parametrize("shape", [(0, 3, 3), (0, 5, 3), (4, 0, 3), (4, 3, 0)])
def test_empty_results_have_the_strides_of_meta_ones(shape):
    for call in (sg.svd, *([sg.eigh] if shape[-1] == shape[-2] else [])):
        for real, meta in zip(call(torch.zeros(shape)), call(torch.zeros(shape, device="meta")), strict=True):
            assert real.stride() == meta.stride()


def test_layers_say_what_to_do_instead_of_torch_jit_script():
    for module in (sg.nn.CovariancePooling(3), torch.nn.Sequential(sg.nn.DecorrelatedBatchNorm2d(3))):
        with pytest.raises(RuntimeError, match=r"cannot be compiled by TorchScript.*torch\.export"):
            torch.jit.script(module)


@pytest.mark.parametrize("rtol", [float("nan"), -1e-3, 2.0])
def test_tolerances_that_mean_nothing(rtol):
    A = torch.eye(3)
    for call in (
        sg.matrix_sqrt,
        sg.matrix_inv_sqrt,
        sg.matrix_log,
        sg.polar,
        lambda A, rtol: sg.matrix_power(A, 0.3, rtol=rtol),
    ):
        with pytest.raises(sg.ArgumentError, match=r"rtol to be a number (from 0 to 1|or None)"):
            call(A, rtol=rtol)


def test_shifts_that_mean_nothing():
    for call in (sg.covariance, sg.covariance_sqrt):
        with pytest.raises(sg.ArgumentError, match="eps"):
            call(torch.eye(3), eps=float("nan"))


@pytest.mark.parametrize("value", [[1.0], None, "x"], ids=repr)
def test_layers_want_tensors(value):
    with pytest.raises(sg.ShapeError, match=r"expected a torch\.Tensor, got"):
        sg.nn.CovariancePooling(3)(value)
