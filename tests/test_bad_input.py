"""N10 and N13: bad input is refused by name and place; odd but legal input is served by every verb and method."""

import math
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.diagnostics.every_function import CALLS as FUNCTIONS
from spectralgrad.testing import with_spectrum

from .helpers import DTYPES, in_turn, unit

NAN, INF = float("nan"), float("inf")


def _rank(A):
    """Two, or as many as there are."""
    return min(2, A.shape[-1]) if isinstance(A, torch.Tensor) and A.dim() else 2


class Verb(NamedTuple):
    """A public verb, the operation its methods must serve (if it takes one), and what it does to a number a > 0."""

    call: Callable
    operation: str | None
    number: Callable
    takes: str = "hermitian"


VERBS = {
    "eigh": Verb(sg.eigh, "eigh", lambda a: a),
    "svd": Verb(sg.svd, "svd", lambda a: a, "any"),
    "matrix_sqrt": Verb(sg.matrix_sqrt, "sqrt", lambda a: a**0.5),
    "matrix_inv_sqrt": Verb(sg.matrix_inv_sqrt, "inv_sqrt", lambda a: a**-0.5),
    "matrix_power": Verb(lambda A, **options: sg.matrix_power(A, 0.3, **options), "power", lambda a: a**0.3),
    "matrix_log": Verb(sg.matrix_log, "log", torch.log),
    "matrix_exp": Verb(sg.matrix_exp, "exp", torch.exp),
    "matrix_function": Verb(lambda A, **options: sg.matrix_function(A, torch.tanh, **options), "function", torch.tanh),
    "spectral_projector": Verb(lambda A: sg.spectral_projector(A, _rank(A)), None, lambda a: a**0),
    "polar": Verb(sg.polar, None, lambda a: a**0, "any"),
    "covariance_sqrt": Verb(
        lambda X, **options: sg.covariance_sqrt(X, center=False, **options), "sqrt", lambda a: a, "features"
    ),
}
# The same verbs with arguments that take another way through the code.
WAYS = {
    "whole power": Verb(lambda A: sg.matrix_power(A, -1), None, lambda a: 1 / a),
    "tensor power": Verb(lambda A: sg.matrix_power(A, torch.tensor(0.3, dtype=torch.float64)), None, lambda a: a**0.3),
    "positions": Verb(lambda X: sg.covariance_sqrt(X, center=False, side="positions"), None, lambda a: a, "features"),
    "positions and eps": Verb(
        lambda X: sg.covariance_sqrt(X, center=False, side="positions", eps=0.5),
        None,
        lambda a: (a**2 + 0.5) ** 0.5,
        "features",
    ),
}
CALLS = VERBS | WAYS
WITH_METHODS = [name for name, verb in VERBS.items() if verb.operation]
HERMITIAN = [name for name, verb in CALLS.items() if verb.takes == "hermitian"]
POSITIVE = ("matrix_sqrt", "matrix_inv_sqrt", "matrix_power", "matrix_log")

# Settings of the methods that take another way through the code, tried on one decomposition and one function.
SETTINGS = {
    "newton-schulz, lyapunov": sg.NewtonSchulz(backward="lyapunov"),
    "svd-pi, unrolled": sg.SVDPI(unrolled=True),
    "svd-topn, 2": sg.TopN(keep=2),
    "svd-taylor, faithful": sg.Taylor(faithful=True),
    "svd-pade, faithful": sg.Pade(faithful=True),
}


def _cases(names=tuple(CALLS)):
    """Every (verb, options) that make sense together."""
    cases = [pytest.param(CALLS[name], {}, id=name) for name in names if not CALLS[name].operation]
    for name in filter(WITH_METHODS.__contains__, names):
        operation = VERBS[name].operation
        chosen = {method: method for method in sg.methods(operation)}
        if name in ("eigh", "matrix_sqrt"):
            chosen |= {key: method for key, method in SETTINGS.items() if operation in method.operations}
        cases += [pytest.param(VERBS[name], {"method": m}, id=f"{name}-{key}") for key, m in chosen.items()]
    return cases


every_verb = pytest.mark.parametrize("name", VERBS)
every_case = pytest.mark.parametrize(("verb", "options"), _cases())


def every_case_with(cases=None, **others):
    return in_turn("verb, options", _cases() if cases is None else cases, **others)


def _positive(batch=(), dtype=torch.float64):
    """Positive definite matrices (*batch, 4, 4) with well separated eigenvalues, different ones in each place."""
    count, wide = torch.Size(batch).numel(), torch.complex128 if dtype.is_complex else torch.float64
    return torch.stack([_one(place, wide) for place in range(count)]).reshape(*batch, 4, 4).to(dtype)


@cache
def _one(place, dtype):
    return with_spectrum([0.5 + i + 0.1 * place for i in range(4)], dtype=dtype, seed=place)


def _tensors(result):
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


def _value_and_gradient(verb, A, **options):
    """The results, and the gradient of a loss that weighs their columns unevenly."""
    A = A.detach().requires_grad_()
    results = _tensors(verb.call(A, **options))
    loss = sum((r * torch.arange(1, 1 + r.shape[-1])).sum().abs() for r in results)
    (g,) = torch.autograd.grad(loss, A)
    return *(r.detach() for r in results), g


# What is refused


@every_case_with(bad=[NAN, -INF])
def test_non_finite_matrices_are_named(verb, options, bad):
    A = _positive((2, 3))
    A[0, 2, 3, 0] = A[1, 0, 1, 1] = bad
    with pytest.raises(sg.NonFiniteError, match=r"positions \(0, 2\), \(1, 0\) of a batch of shape \(2, 3\)") as caught:
        verb.call(A, **options)
    assert caught.value.positions == [(0, 2), (1, 0)]
    assert caught.value.batch_shape == (2, 3)


@pytest.mark.parametrize(
    ("batch", "bad", "words"),
    [
        ((), [()], "NaN or Inf in the matrix"),
        ((3,), [(1,)], r"in position 1 of a batch of shape \(3,\)"),
        ((12,), [(i,) for i in range(1, 11)], "positions 1, 2, 3, 4, 5, 6, 7, 8 and 2 more of a batch"),
        ((2, 1, 2), [(1, 0, 0), (1, 0, 1)], r"positions \(1, 0, 0\), \(1, 0, 1\) of a batch of shape \(2, 1, 2\)"),
    ],
)
@every_verb
def test_positions_are_written_as_indices_of_the_batch(name, batch, bad, words):
    A = _positive(batch)
    for position in bad:
        A[position][2, 1] = NAN
    with pytest.raises(sg.NonFiniteError, match=words) as caught:
        VERBS[name].call(A)
    assert caught.value.positions == bad


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.bfloat16], ids=str)
@every_verb
def test_non_finite_entries_are_found_in_every_type(name, dtype):
    A = _positive((3,), dtype)
    A[2, 3, 1] = complex(0, NAN) if dtype.is_complex else NAN
    with pytest.raises(sg.NonFiniteError, match="position 2 of"):
        VERBS[name].call(A)


@every_verb
def test_positions_survive_vmap(name):
    A = _positive((2, 3))
    A[1, 2, 3, 0] = NAN
    with pytest.raises(sg.NonFiniteError, match=r"position \(1, 2\) of a batch of shape \(2, 3\)"):
        torch.func.vmap(VERBS[name].call)(A)


@every_case_with(_cases(HERMITIAN), junk=[NAN, 3.0, 1e-5])
def test_the_upper_triangle_must_agree_for_functions_and_is_not_used(verb, options, junk):
    A = _positive((2,))
    B = A + torch.full_like(A, junk).triu(1)
    if verb is not VERBS["eigh"] and junk != 1e-5:  # asymmetry at the level of rounding is accepted
        with pytest.raises(sg.AsymmetricError if junk == 3.0 else sg.NonFiniteError, match=r"position"):
            verb.call(B, **options)
        return
    results = _value_and_gradient(verb, B, **options)
    assert_close(results, _value_and_gradient(verb, A, **options))
    assert_close(results[-1], results[-1].mH)


@pytest.mark.parametrize("name", ["svd", "polar", "covariance_sqrt", "matrix_sqrt", "spectral_projector"])
def test_the_upper_triangle_is_read_by_all_others(name):
    A = _positive((2,))
    A[1, 0, 3] = NAN
    with pytest.raises(sg.NonFiniteError, match="position 1 of"):
        VERBS[name].call(A)


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        ([[1.0]], r"expected . to be a torch.Tensor, got \[\[1.0\]\]"),
        (torch.eye(2, dtype=torch.int64), "expected a floating-point or complex tensor, got torch.int64"),
        (torch.eye(2, dtype=torch.bool), "expected a floating-point or complex tensor, got torch.bool"),
        (torch.ones(3), r"expected matrices .*, got shape \(3,\)"),
        (torch.tensor(1.0), r"expected matrices .*, got shape \(\)"),
    ],
    ids=["list", "integers", "booleans", "vector", "number"],
)
@pytest.mark.parametrize("name", [*VERBS, "covariance"])
def test_what_is_no_matrix_of_floats_is_refused(name, thing, words):
    with pytest.raises(sg.ShapeError, match=f"^{name}: {words}"):
        (VERBS[name].call if name in VERBS else sg.covariance)(thing)


@pytest.mark.parametrize("name", [name for name in HERMITIAN if name in VERBS])
def test_rectangles_are_refused_where_squares_are_wanted(name):
    words = rf"^{name}: expected square matrices \(\*, d, d\), got shape \(5, 2, 3\)"
    with pytest.raises(sg.ShapeError, match=words):
        VERBS[name].call(torch.ones(5, 2, 3))


@pytest.mark.parametrize("k", [-1, 5, 1.5])
def test_projectors_of_impossible_rank_are_refused(k):
    with pytest.raises((sg.ArgumentError, TypeError), match=rf"got {k}"):
        sg.spectral_projector(torch.eye(4), k)


@pytest.mark.parametrize("name", WITH_METHODS)
def test_an_unknown_method_gets_the_list(name):
    with pytest.raises(sg.MethodError, match=f"unknown method 'qr'; .*: {', '.join(sg.methods())}$"):
        VERBS[name].call(torch.eye(2), method="qr")


@pytest.mark.parametrize("method", [None, 3, sg.Taylor])
@pytest.mark.parametrize("name", WITH_METHODS)
def test_a_method_is_a_name_or_an_object(name, method):
    with pytest.raises(sg.MethodError, match="expected method to be a string or a Method, got"):
        VERBS[name].call(torch.eye(2), method=method)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (name, method)
        for name in WITH_METHODS
        for method in sg.methods()
        if method not in sg.methods(VERBS[name].operation)
    ],
)
def test_a_method_for_something_else_gets_the_list_of_those_that_serve(name, method):
    operation = VERBS[name].operation
    words = f"'{method}' is not available for {operation}; choose from: {', '.join(sg.methods(operation))}$"
    with pytest.raises(sg.MethodError, match=words):
        VERBS[name].call(torch.eye(2), method=method)


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (sg.ArgumentError, ValueError),
        (sg.ShapeError, sg.ArgumentError),
        (sg.NonFiniteError, ValueError),
        (sg.IndefiniteError, ValueError),
        (sg.MethodError, ValueError),
        (sg.SolverError, RuntimeError),
    ],
)
def test_errors_are_what_a_caller_would_catch(error, base):
    assert issubclass(error, base)
    assert issubclass(error, sg.SpectralError)


# Indefinite matrices


def _indefinite():
    A = _positive((2, 3))
    A[1, 0] = with_spectrum([-2.0, 0.5, 1.0, 3.0], seed=7)
    return A


@pytest.mark.parametrize(("verb", "options"), _cases(POSITIVE))
def test_an_indefinite_matrix_is_named_with_its_eigenvalue(verb, options):
    with pytest.raises(sg.IndefiniteError, match=r"^matrix_\w+: .* eigenvalue -2 in batch position \(1, 0\)") as caught:
        verb.call(_indefinite(), **options)
    assert caught.value.position == (1, 0)
    assert caught.value.eigenvalue == pytest.approx(-2)


@pytest.mark.parametrize("name", POSITIVE)
def test_an_indefinite_matrix_without_a_batch_is_the_matrix(name):
    with pytest.raises(sg.IndefiniteError, match="eigenvalue -2 in the matrix"):
        VERBS[name].call(_indefinite()[1, 0])


@pytest.mark.parametrize("name", POSITIVE)
def test_an_indefinite_matrix_is_named_under_vmap(name):
    with pytest.raises(sg.IndefiniteError, match=r"batch position \(1, 0\)"):
        torch.func.vmap(VERBS[name].call)(_indefinite())


@pytest.mark.parametrize(("verb", "options"), _cases(POSITIVE))
def test_clamp_takes_negative_eigenvalues_for_zero(verb, options):
    A = _indefinite()
    w, V = torch.linalg.eigh(A)
    clamped = (V * w.clamp_min(0).unsqueeze(-2)) @ V.mH
    value, g = _value_and_gradient(verb, A, clamp=True, **options)
    assert_close(value, verb.call(clamped, **options))
    assert bool(torch.isfinite(g).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", POSITIVE)
def test_rounding_noise_below_zero_is_no_indefinite_matrix(name, dtype):
    A = torch.diag(torch.tensor([1.0, 0.5, -2 * unit(dtype)], dtype=dtype))
    zeroed = torch.diag(torch.tensor([1.0, 0.5, 0.0], dtype=dtype))
    assert_close(VERBS[name].call(A), VERBS[name].call(zeroed))


# Odd but legal


@every_case_with(dtype=[torch.float16, torch.float32, torch.complex64])
def test_types_and_shapes(verb, options, dtype):
    A = _positive((2,), dtype)
    for x in _value_and_gradient(verb, A, **options):
        assert x.shape == A.shape[: x.dim()]
        assert x.dtype == (dtype if x.dim() == 3 else dtype.to_real())
        assert bool(torch.isfinite(x).all())


@every_case_with(shape=[(0, 3, 3), (0, 0), (2, 0, 0)], dtype=[torch.float32, torch.complex64])
def test_nothing_in_nothing_out(verb, options, shape, dtype):
    A = torch.empty((*shape[:-1], 3) if verb.takes == "features" else shape, dtype=dtype)
    *values, g = _value_and_gradient(verb, A, **options)
    assert g.shape == A.shape
    for x in values:
        assert x.shape == shape[: x.dim()]
        assert x.dim() == len(shape) or len(values) > 1


@every_case_with(
    _cases(["svd", "polar", "covariance_sqrt"]), shape=[(2, 5, 3), (2, 3, 5), (1, 4), (4, 1), (0, 3), (0, 5, 3)]
)
def test_rectangles_of_every_shape(verb, options, shape):
    A = torch.randn(shape, dtype=torch.complex128)
    *batch, m, n = shape
    expected = {
        "any": [(*batch, m, n)]
        if verb is VERBS["polar"]
        else [(*batch, m, min(m, n)), (*batch, min(m, n)), (*batch, min(m, n), n)],
        "features": [(*batch, m, m)],
    }[verb.takes]
    results = _value_and_gradient(verb, A, **options)
    assert [tuple(x.shape) for x in results] == [*expected, shape]
    assert all(bool(torch.isfinite(x).all()) for x in results)


@pytest.mark.parametrize("name", ["covariance", "covariance_sqrt"])
@pytest.mark.parametrize(("positions", "correction"), [(0, 0), (1, 1)])
def test_a_covariance_needs_positions(name, positions, correction):
    with pytest.raises(sg.ShapeError, match=rf"expected more than {correction} positions .*, got .*\(3, {positions}\)"):
        getattr(sg, name)(torch.ones(3, positions), correction=correction)


@every_case_with(dtype=[torch.float32, torch.complex128])
def test_a_matrix_of_one_entry_is_a_number(verb, options, dtype):
    a = torch.tensor([0.7, 2.0], dtype=dtype.to_real(), requires_grad=True)
    (slope,) = torch.autograd.grad(verb.number(a).sum(), a)
    A = a.detach().to(dtype)[:, None, None].requires_grad_()
    results = _tensors(verb.call(A, **options))
    value = (
        torch.stack([r.flatten().to(dtype) for r in results]).prod(0).real if verb.operation == "svd" else results[0]
    )
    (g,) = torch.autograd.grad(value.real.sum(), A)
    close = {"rtol": 64 * unit(dtype), "atol": 64 * unit(dtype)}
    assert_close(value.detach().real.flatten(), verb.number(a).detach(), **close)
    assert_close(g.flatten(), slope.to(dtype), **close)


LAYOUTS = {
    "transposed": lambda A: A.mT.contiguous().mT,
    "strided": lambda A: torch.stack([A, A], -1).flatten(-2)[..., ::2],
    "permuted": lambda A: A.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1),
    "conjugate": lambda A: A.conj().resolve_conj().conj(),
}


@every_case_with(layout=LAYOUTS)
def test_layout_in_memory_does_not_matter(verb, options, layout):
    A = _positive((2, 3), torch.complex128)
    B = LAYOUTS[layout](A)
    assert torch.equal(A, B)
    assert not B.is_contiguous() or B.is_conj()
    assert_close(_value_and_gradient(verb, B, **options), _value_and_gradient(verb, A, **options))


@every_case
def test_expanded_batches_are_batches(verb, options):
    A = _positive((2, 1)).requires_grad_()
    B = A.expand(2, 3, 4, 4)
    results, copies = _tensors(verb.call(B, **options)), _tensors(verb.call(B.clone(), **options))
    assert_close(results, copies)
    (g,) = torch.autograd.grad(sum(r[..., 0].sum() for r in results), A)
    (h,) = torch.autograd.grad(sum(r[..., 0].sum() for r in copies), A)
    assert_close(g, h)


@every_case
def test_many_batch_dimensions_are_one(verb, options):
    A = _positive((2, 1, 3, 1, 2))
    many, one = _value_and_gradient(verb, A, **options), _value_and_gradient(verb, A.flatten(0, 4), **options)
    for x, y in zip(many, one, strict=True):
        assert x.shape[:5] == A.shape[:5]
        assert_close(x.flatten(0, 4), y)


@every_case
def test_no_gradient_is_made_when_none_is_wanted(verb, options):
    A = _positive((2,)).requires_grad_()
    *expected, _ = _value_and_gradient(verb, A, **options)
    for context, X in ((torch.no_grad, A), (torch.inference_mode, A), (torch.enable_grad, A.detach())):
        with context():
            results = _tensors(verb.call(X, **options))
        assert not any(r.requires_grad for r in results)
        assert_close(results, tuple(expected))


# Drop-in for torch.linalg

SHAPES = [(4, 4), (2, 3, 3), (0, 2, 2), (2, 0, 0), (1, 1)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_eigh_is_a_drop_in(shape, dtype):
    A = torch.randn(shape, dtype=dtype)
    _assert_same_tuple(sg.eigh(A), torch.linalg.eigh(A), ("eigenvalues", "eigenvectors"))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 5), (5, 2), (0, 5, 2), (3, 0), (0, 3)], ids=str)
def test_svd_is_a_drop_in(shape, dtype, full):
    M = torch.randn(shape, dtype=dtype)
    _assert_same_tuple(sg.svd(M, full_matrices=full), torch.linalg.svd(M, full_matrices=full), ("U", "S", "Vh"))


def _assert_same_tuple(result, expected, names):
    assert result._fields == names
    for name, x, y in zip(names, result, expected, strict=True):
        assert getattr(result, name) is x
        assert getattr(expected, name).data_ptr() == y.data_ptr()
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
    values = int(len(names) == 3)
    assert_close(result[values], expected[values])


def test_errors_survive_pickling_as_process_pools_need():
    bad = torch.eye(2).repeat(3, 1, 1)
    bad[1, 0, 0] = torch.nan
    for call in (lambda: sg.eigh(bad), lambda: sg.matrix_sqrt(-torch.eye(2)), lambda: sg.eigh(torch.ones(2))):
        with pytest.raises(sg.SpectralError) as caught:
            call()
        copy = pickle.loads(pickle.dumps(caught.value))
        assert type(copy) is type(caught.value)
        assert str(copy) == str(caught.value)
        assert vars(copy) == vars(caught.value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", ["exact", "newton-schulz"])
@pytest.mark.parametrize("d", [3, 64])
def test_negative_eigenvalues_are_refused_below_thirty_two_rank_tolerances(d, method, dtype):
    limit = 3 * 32 * torch.finfo(dtype).eps * max(8.0, 3 * d**0.5)
    for share in (1 + 2**-7, 1 - 2**-7):
        A = torch.diag(torch.tensor([-share * limit, 3, *[1] * (d - 2)], dtype=torch.float64)).to(dtype)
        with pytest.raises(sg.IndefiniteError) if share > 1 else nullcontext():
            sg.matrix_sqrt(A, method=method)


@pytest.mark.parametrize("method", ["exact", "newton-schulz", "svd-taylor"])
def test_imaginary_parts_on_the_diagonal_are_ignored(method):
    A = with_spectrum([0.5, 1.0, 2.0], dtype=torch.complex128)
    skew = 1j * torch.diag(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    assert torch.equal(sg.matrix_sqrt(A + 1e-5 * skew, method=method), sg.matrix_sqrt(A, method=method))
    assert torch.equal(sg.eigvalsh(A + skew), sg.eigvalsh(A))
    with pytest.raises(sg.AsymmetricError):  # not Hermitian beyond rounding
        sg.matrix_sqrt(A + skew, method=method)


def test_nearest_orthogonal_wants_matrices():
    with pytest.raises(sg.ShapeError, match="nearest_orthogonal"):
        sg.optim.nearest_orthogonal(torch.ones(3))


@pytest.mark.parametrize("p", [0.5, -0.5])
def test_half_powers_check_their_input_once_and_under_their_own_name(monkeypatch, p):
    from spectralgrad.autograd.functions import domain
    from spectralgrad.linalg import matrix_functions

    seen = []
    for name in ("check_square", "check_tolerance", "resolve", "widen"):
        module = domain if name == "check_tolerance" else matrix_functions
        known = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, name=name, known=known: seen.append(name) or known(*a))
    sg.matrix_power(torch.eye(2), p, clamp=False)  # with an option: not by one call of the kernel
    assert sorted(seen) == ["check_square", "check_tolerance", "resolve", "widen"]
    with pytest.raises(sg.IndefiniteError, match="matrix_power"):
        sg.matrix_power(-torch.eye(2), p)


@pytest.mark.parametrize("side", ["channels", "positions"])
@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_a_covariance_refuses_an_impossible_tolerance_on_either_side(side, eps):
    with pytest.raises(sg.ArgumentError, match="covariance_sqrt: expected"):
        sg.covariance_sqrt(torch.randn(3, 4), side=side, eps=eps, rtol=-1.0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_is_the_same_with_and_without_a_gradient(name):
    said = []
    for wanted in (False, True):
        A = torch.full((4, 4), math.nan, dtype=torch.float64).requires_grad_(wanted)
        try:
            FUNCTIONS[name](A)
        except sg.SpectralError as error:
            said.append(str(error))
        else:
            said.append("")
    assert said[0] == said[1]
