"""Functions of singular values and their norms: exact at ties and at rank loss, documented choices elsewhere."""

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd.singular import functions as singular_functions
from spectralgrad.linalg import singular_values
from spectralgrad.native import kernel, library
from spectralgrad.testing import random_orthogonal, relative_error

from .helpers import DOUBLES, DTYPES, gradient, noise, not_finite, rectangular, unit

FUNCTIONS = {
    "tanh": lambda M: sg.singular_value_function(M, torch.tanh),
    "cube": lambda M: sg.singular_value_function(M, lambda s: s**3),
    "reciprocal": lambda M: sg.singular_value_function(M, torch.reciprocal, rtol=1e-6),
    "threshold": lambda M: sg.singular_value_threshold(M, 0.7),
    "low_rank": lambda M: sg.low_rank(M, 2),
}
NORMS = {
    "nuclear": sg.nuclear_norm,
    "spectral": sg.spectral_norm,
    "schatten 1.5": lambda M: sg.schatten_norm(M, 1.5),
    "schatten 2": lambda M: sg.schatten_norm(M, 2),
    "schatten 4": lambda M: sg.schatten_norm(M, 4),
}
ALL = FUNCTIONS | NORMS
SCALAR = {  # what they do to singular values in descending order
    "tanh": torch.tanh,
    "cube": lambda s: s**3,
    "reciprocal": lambda s: torch.where(s > 0, 1 / s, 0),
    "threshold": lambda s: (s - 0.7).clamp_min(0),
    "low_rank": lambda s: torch.where(torch.arange(len(s)) < 2, s, 0),
    "nuclear": torch.sum,
    "spectral": torch.amax,
    "schatten 1.5": lambda s: s.pow(1.5).sum() ** (1 / 1.5),
    "schatten 2": lambda s: s.square().sum().sqrt(),
    "schatten 4": lambda s: s.pow(4).sum() ** 0.25,
}
VALUES = {"spread": [2.0, 1.0, 0.5], "tie": [1.0, 1.0, 0.25], "near": [1.0, 1.0 - 1e-13, 0.25], "rank": [2.0, 1.0, 0.0]}
# No derivative at these: a tie at the top of the spectral norm, and rank loss where the slope jumps or is infinite.
NONE = {("spectral", "tie"), ("spectral", "near"), ("nuclear", "rank"), ("reciprocal", "rank")}
NO_SECOND = NONE | {("schatten 1.5", "rank")}


def matrix(values, m=3, n=3, dtype=torch.float64):
    return rectangular(values, m, n, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_values(name, dtype, both_ways):
    for spectrum in VALUES.values():
        expected = SCALAR[name](torch.tensor(spectrum, dtype=torch.float64))
        expected = matrix(expected.tolist(), 4) if expected.dim() else expected
        expected = expected if not dtype.is_complex or not expected.dim() else None
        got = ALL[name](matrix(spectrum, 4, dtype=dtype))
        if expected is None:  # the same singular values with complex vectors
            wanted = SCALAR[name](torch.tensor(spectrum, dtype=torch.float64)).sort(descending=True).values
            got, expected = torch.linalg.svdvals(got), wanted
        scale = float(expected.abs().max())
        assert_close(got.double(), expected, rtol=0, atol=200 * unit(dtype) * scale)


# Each spectrum in one shape, so that every shape meets ties or rank loss.
SHAPES = {"spread": (3, 4), "tie": (4, 3), "near": (3, 3), "rank": (4, 3)}


@pytest.mark.parametrize(("name", "spectrum"), [(n, s) for n in ALL for s in VALUES if (n, s) not in NONE])
def test_derivatives_are_exact_at_ties_and_at_rank_loss(name, spectrum, both_ways):
    M = matrix(VALUES[spectrum], *SHAPES[spectrum]).requires_grad_()
    assert gradcheck(ALL[name], (M,), check_forward_ad=True)
    if (name, spectrum) not in NO_SECOND:
        assert gradgradcheck(ALL[name], (M,))


@pytest.mark.parametrize("name", ALL)
def test_second_derivatives_of_a_batch_and_at_exact_ties(name, both_ways):
    """Each matrix has its own; at an exact tie they are finite."""
    M = torch.stack(
        [matrix([2.0, 1.1, 0.5], 4, 3), matrix([1.5, 1.5, 0.6], 4, 3), torch.eye(4, 3, dtype=torch.float64)]
    )
    Z = noise(3, 4, 3)

    def product(X, direction):
        X = X.clone().requires_grad_()
        (g,) = torch.autograd.grad(ALL[name](X).sin().sum(), X, create_graph=True)
        return torch.autograd.grad((g * direction).sum(), X)[0]

    found = product(M, Z)
    assert bool(found.isfinite().all())
    for k in range(2):  # of the identity the vectors depend on the solver
        assert_close(found[k], product(M[k], Z[k]))
        assert_close(jvp(grad(lambda X: ALL[name](X).sin().sum()), (M[k],), (Z[k],))[1], found[k])
        assert_close(grad(lambda X, k=k: (grad(lambda Y: ALL[name](Y).sin().sum())(X) * Z[k]).sum())(M[k]), found[k])


@pytest.mark.parametrize("values", [[2.0, 0.8], [1.1, 1.1]], ids=str)
@pytest.mark.parametrize("name", ["nuclear", "schatten 1.5", "schatten 4"])
def test_third_derivatives_of_norms(name, values):
    Z = noise(3, 2)

    def product(X):
        (g,) = torch.autograd.grad(ALL[name](X).cos().sum(), X, create_graph=True)
        return torch.autograd.grad((g * Z).sum(), X, create_graph=True)[0]

    assert gradcheck(product, (matrix(values, 3, 2).requires_grad_(),), fast_mode=True)


@pytest.mark.parametrize("name", ALL)
def test_complex_derivatives(name, both_ways):
    M = matrix([2.0, 1.0, 1.0] if name in ("spectral", "nuclear") else [1.0, 1.0, 0.25], 3, 3, torch.complex128)
    assert gradcheck(ALL[name], (M.requires_grad_(),), check_forward_ad=True)
    tall = matrix([2.0, 0.8], 3, 2, torch.complex128).requires_grad_()
    assert gradgradcheck(ALL[name], (tall,))


HARD = ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1e-30, 0.0], [0.7, 0.7, 0.1])


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_everything_is_finite(name, dtype, alone, both_ways):
    exact = torch.nn.functional.pad(torch.diag_embed(torch.tensor(HARD, dtype=torch.float64)), (0, 0, 0, 1)).to(dtype)
    for M in (exact, torch.stack([matrix(values, 4, 3, dtype) for values in HARD])):
        found = [_two_derivatives(name, X) for X in M] if alone else [_two_derivatives(name, M)]
        stacked = zip(*found, strict=True)
        assert not_finite(HARD, *(torch.stack(x) if alone else x[0] for x in stacked)) == []


def _two_derivatives(name, M):
    """The function's result, its gradient, and the gradient of the gradient if there is one."""
    result = ALL[name](M.requires_grad_())
    G = noise(*result.shape, dtype=result.dtype)
    (g,) = torch.autograd.grad(result, M, G, create_graph=True)
    (second,) = torch.autograd.grad(g, M, noise(*M.shape, dtype=M.dtype), allow_unused=True)
    return result.detach(), g.detach(), g.detach() if second is None else second


@pytest.mark.parametrize("gap", [1e-2, 1e-6, 1e-10, 1e-14, 0.0])
def test_gradient_of_a_function_against_fifty_digits(gap, both_ways):
    """Divided differences of tanh in 50 digits; its derivatives are small, so that a rotation loses nothing."""
    s = [1.5, 1.5 * (1 - gap), 0.25, 0.0]
    U, V = random_orthogonal(4, seed=1), random_orthogonal(4, seed=2)
    M, G = (U * torch.tensor(s, dtype=torch.float64)) @ V.mT, noise(4, 4)
    H = U.mT @ G @ V
    with mpmath.workdps(50):
        x = [mpmath.mpf(v) for v in s]
        f = [mpmath.tanh(v) for v in x]
        minus = lambda i, j: (f[i] - f[j]) / (x[i] - x[j]) if x[i] != x[j] else 1 - f[i] ** 2  # noqa: E731
        plus = lambda i, j: (f[i] + f[j]) / (x[i] + x[j]) if x[i] + x[j] else mpmath.mpf(1)  # noqa: E731
        joint, apart = (
            torch.tensor([[float(w(i, j)) for j in range(4)] for i in range(4)], dtype=torch.float64)
            for w in (minus, plus)
        )
    expected = U @ (joint * (H + H.mT) / 2 + apart * (H - H.mT) / 2) @ V.mT
    assert relative_error(gradient(FUNCTIONS["tanh"], M, G), expected) < 100 * unit(torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_at_points_without_a_derivative_have_the_smallest_subgradient(dtype, both_ways):
    one = torch.ones((), dtype=dtype.to_real())
    M, first, both = (matrix(values, 4, 3, dtype) for values in ([3.0, 3.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]))
    tolerance = 100 * unit(dtype)
    assert relative_error(gradient(sg.nuclear_norm, M, one), both) < tolerance
    assert relative_error(gradient(sg.spectral_norm, M, one), both / 2) < tolerance
    apart = matrix([3.0, 3.0 - 1e5 * unit(dtype), 0.0], 4, 3, dtype)  # no tie: the vectors are known to 1e-5
    assert relative_error(gradient(sg.spectral_norm, apart, one), first) < 100 / 1e5
    small = matrix([3.0, 3.0, 1e3 * unit(dtype)], 4, 3, dtype)  # of rank three
    assert relative_error(gradient(sg.nuclear_norm, small, one), matrix([1.0] * 3, 4, 3, dtype)) < 100 / 1e3
    for norm in NORMS.values():
        assert bool((gradient(norm, 0 * M, one) == 0).all())


def test_threshold_at_its_kink_and_without_effect(both_ways):
    """Signed permutations of a diagonal matrix, so that singular values are at the kink and at zero exactly."""
    G, S = noise(3, 4), torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    M = torch.zeros(3, 4, dtype=torch.float64)
    M[[2, 0, 1], [3, 1, 0]] = S * torch.tensor([1.0, -1.0, 1.0])
    at, above = (gradient(lambda X, tau=tau: sg.singular_value_threshold(X, tau), M, G) for tau in (1.0, 1.0 + 1e-9))
    assert_close(at, above, rtol=1e-8, atol=1e-8)
    for X in (M, 0 * M, matrix([2.0, 1.0, 0.0], 3, 4)):
        assert_close(gradient(lambda X: sg.singular_value_threshold(X, 0.0), X, G), G)
        everything = gradient(lambda X: sg.singular_value_threshold(X, 2.0 + 1e-9), X, G)
        assert bool((everything == 0).all())


@pytest.mark.parametrize("name", ["tau", "slope"])
def test_parameters_learn(name):
    f = {
        "tau": lambda M, p: sg.singular_value_threshold(M, p),
        "slope": lambda M, p: sg.singular_value_function(M, lambda s: torch.tanh(p * s)),
    }[name]
    p = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    M = matrix(VALUES["spread"], 3, 4).requires_grad_()
    assert gradcheck(f, (M, p), check_forward_ad=True)
    assert gradgradcheck(f, (M, p))
    assert gradcheck(f, (matrix(VALUES["tie"]).requires_grad_(), p))
    assert_close(f(M, p.detach()), f(M, p))


@pytest.mark.parametrize("name", ALL)
def test_transforms_agree(name):
    batch = torch.stack([matrix(VALUES[s], 4) for s in ("spread", "rank")])
    weights = torch.arange(12.0, dtype=torch.float64).reshape(4, 3).cos()
    loss = lambda M: (ALL[name](M) * weights).sum()  # noqa: E731
    leaf = batch.clone().requires_grad_()
    (expected,) = torch.autograd.grad(sum(loss(M) for M in leaf), leaf)
    assert_close(vmap(grad(loss))(batch), expected)
    assert_close(jacfwd(loss)(batch[0]), expected[0])
    assert_close(jacrev(loss)(batch[0]), expected[0])


@pytest.mark.parametrize("name", ["tanh", "threshold", "low_rank", "nuclear", "spectral", "schatten 4"])
def test_compiled_equals_eager(name):
    torch._dynamo.reset()
    M = torch.stack([matrix(VALUES[s], 4) for s in ("spread", "rank")]).requires_grad_()
    compiled = torch.compile(lambda X: ALL[name](X).sin().sum(), fullgraph=True, backend="aot_eager")
    (g,) = torch.autograd.grad(compiled(M), M)
    assert_close(g, torch.autograd.grad(ALL[name](M).sin().sum(), M)[0])
    for X in (M.detach(), M.detach()[0]):  # without a gradient, Dynamo calls the forward pass in another way
        assert_close(compiled(X), ALL[name](X).sin().sum())


@pytest.mark.parametrize("name", ["threshold", "low_rank", "nuclear", "spectral"])
def test_gradients_near_overflow(name):
    M = (3e38 * torch.eye(3)).requires_grad_()
    assert torch.autograd.grad(ALL[name](M).sum(), M)[0].isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_half_types_batches_and_empty_matrices(name):
    M = matrix(VALUES["tie"], dtype=torch.float32)
    half = M.bfloat16()
    assert_close(ALL[name](half), ALL[name](half.float()).bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(ALL[name](M), ALL[name](M), rtol=0, atol=0)
    assert ALL[name](M.expand(0, 3, 3)).shape[:1] == (0,)
    beside = torch.stack([M, 5 * M.mT])
    assert torch.equal(ALL[name](beside)[0], ALL[name](torch.stack([M, M]))[0])
    if name != "low_rank":
        assert ALL[name](M[:0]).numel() in (0, 1)


@pytest.mark.parametrize(("dtype", "c"), [(torch.float32, 2.0**60), (torch.float64, 2.0**498)], ids=str)
@pytest.mark.parametrize("name", ["low_rank", *NORMS])
def test_homogeneous_functions_scale(name, dtype, c):
    M = matrix(VALUES["spread"], dtype=dtype)
    G = torch.ones(()) if name in NORMS else torch.arange(9.0).reshape(3, 3).cos()
    g = gradient(ALL[name], M, G.to(dtype))
    for factor in (c, 1 / c):
        assert_close(ALL[name](M * factor) / factor, ALL[name](M), rtol=64 * unit(dtype), atol=64 * unit(dtype))
        assert relative_error(gradient(ALL[name], M * factor, G.to(dtype)), g) < 1e3 * unit(dtype)


def test_bad_input_is_named():
    M = torch.ones(2, 3, 3)
    M[1, 0, 0] = torch.inf
    for name, f in ALL.items():
        with pytest.raises(sg.NonFiniteError, match="position 1"):
            f(M)
        with pytest.raises(sg.ShapeError, match="expected"):
            f(torch.ones(3)), name
    for call in (
        lambda: sg.singular_value_function(M[0], torch.exp),
        lambda: sg.singular_value_function(M[0], lambda s: s.sum()),
        lambda: sg.singular_value_threshold(M[0], -1.0),
        lambda: sg.low_rank(M[0], 4),
        lambda: sg.low_rank(M[0], 1.5),
        lambda: sg.low_rank(M[0], True),
        lambda: sg.schatten_norm(M[0], 0.5),
    ):
        with pytest.raises(sg.ArgumentError, match="expected"):
            call()
    with pytest.raises(sg.ShapeError, match="broadcasts"):
        sg.singular_value_threshold(M[0], torch.ones(3))


def near_ties(m, n, dtype, batch=11):
    """Matrices with distinct, close and equal singular values; more of them than a vector of the kernel holds."""
    k = min(m, n)
    gaps = torch.logspace(0, -14, batch, dtype=torch.float64)
    values = torch.stack([1 + g * torch.linspace(1, 0, k, dtype=torch.float64) for g in gaps])
    values[-1] = 1
    values[:, -1] *= gaps.flip(-1)
    U, V = random_orthogonal(m, seed=1), random_orthogonal(n, seed=2)
    return ((U[:, :k] * values.unsqueeze(-2)) @ V[:k]).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (4, 3), (3, 7), (12, 12), (23, 18), (17, 40)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_kernel_computes_what_torch_does(name, shape, dtype, monkeypatch):
    if min(shape) < 2 and name == "low_rank":
        return
    M = near_ties(*shape, dtype)
    G = torch.randn(M.shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    triplets = singular_functions.decomposed(M, "svd")
    for module in (singular_values, singular_functions):
        monkeypatch.setattr(module, "decomposed", lambda *_: triplets)  # vectors differ at ties
    value, g = FUNCTIONS[name](M), gradient(FUNCTIONS[name], M, G)
    monkeypatch.setattr(library, "switched_off", True)
    assert relative_error(value, FUNCTIONS[name](M)) < 10 * max(shape) * unit(dtype)
    # The quotients, of pairs further apart than 20 %, have relative errors of a few roundings.
    assert relative_error(g, gradient(FUNCTIONS[name], M, G)) < 20 * max(shape) * unit(dtype)


def test_the_derivative_is_evaluated_only_where_it_is_needed():
    points = []

    def df(s):
        points.append(s.numel())
        return 1 - torch.tanh(s) ** 2

    # Of the pairs, (2.0, 1.9) and (0.5, 0.49) are close.
    M = torch.stack([matrix([2.0, 1.9, 1.0, 0.5, 0.49], 5, 5), matrix([8.0, 4.0, 2.0, 1.0, 0.5], 5, 5)])
    sg.singular_value_function(M, torch.tanh, df)
    assert points == []  # no gradient is wanted
    leaf = M.requires_grad_()
    F = sg.singular_value_function(leaf, torch.tanh, df)
    if kernel() is not None:
        assert sum(points) == 10 + 2 * 6 + 2  # values, nodes, and the check that df is elementwise
    before = len(points)
    (g,) = torch.autograd.grad(F.sum(), leaf, create_graph=True)
    if kernel() is not None:
        assert len(points) > before  # f″, for a second derivative only
    assert g.requires_grad


def test_a_function_that_mixes_singular_values_is_refused():
    M = matrix([2.0, 1.0, 0.5])
    for f in (lambda s: s * s.sum(), lambda s: s * s.amax(-1, keepdim=True), lambda s: s.cumsum(-1)):
        with pytest.raises(sg.ArgumentError, match="elementwise"):
            sg.singular_value_function(M, f)


def test_an_infinite_slope_at_zero_means_the_derivative_within_the_rank():
    """Of a root, as on the range; exact zeros, so that no rounding error is taken to the power of one half."""
    M = torch.diag(torch.tensor([2.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    G = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    everywhere, on_range = (
        gradient(lambda X, rtol=rtol: sg.singular_value_function(X, torch.sqrt, rtol=rtol), M, G)
        for rtol in (None, 1e-9)
    )
    assert relative_error(everywhere, on_range) < 100 * unit(torch.float64)


def test_overflow_stays_within_its_matrix():
    f = lambda X: sg.singular_value_function(X, torch.expm1)  # noqa: E731
    M = torch.stack([matrix(VALUES["spread"], dtype=torch.float32)] * 3)
    G = torch.ones(3, 3, 3)
    expected = gradient(f, M, G)
    M[1] *= 200  # expm1(400) is infinite
    got = gradient(f, M, G)
    assert torch.equal(got[::2], expected[::2])
    assert got.isfinite().all()
    logs = sg.matrix_function(torch.stack([torch.eye(2), -torch.eye(2)]).requires_grad_(), torch.log)
    assert logs[0].isfinite().all()
    assert logs[1].diagonal().isnan().all()


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_low_rank_below_the_rank_projects_on_the_tangent_space(dtype, both_ways):
    """Of a matrix of rank 2 the gradient is that within the matrices of rank 2, whatever k ≥ 2 is."""
    M, G = matrix([2.0, 1.0], 4, 3, dtype), matrix([1.0, 0.5, 0.2], 4, 3, dtype).flip(-1)
    U, _, Vh = torch.linalg.svd(M)
    outside = U[:, 2:] @ U[:, 2:].mH @ G @ Vh[2:].mH @ Vh[2:]
    for k in (2, 3):
        assert relative_error(gradient(lambda X, k=k: sg.low_rank(X, k), M, G), G - outside) < 100 * unit(dtype)
    assert not sg.low_rank(M, 0).any()
    assert not gradient(lambda X: sg.low_rank(X, 0), M, G).any()


FAST = {
    "sin": (torch.sin, [100.0, 120.0]),
    "exp": (lambda x: torch.exp(x) - 1, [80.0, 100.0]),
    "sin, a period apart": (lambda x: torch.sin(10 * x), [10.0, 10.0 + torch.pi / 5]),
    "sigmoid": (lambda x: x * torch.sigmoid(20 * (x - 2)), [1.8, 2.2]),
}


@pytest.mark.parametrize("kernel_used", [True, False])
@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("verb", [sg.matrix_function, sg.singular_value_function])
def test_functions_that_vary_within_a_pair_have_their_divided_difference(verb, name, kernel_used, monkeypatch):
    """Six nodes are too few for them, and the quotient is exact up to its rounding errors."""
    monkeypatch.setattr(library, "switched_off", not kernel_used)
    f, values = FAST[name]
    M = torch.diag(torch.tensor(values, dtype=torch.float64)).requires_grad_()
    G = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(verb(M, f), M, G)
    a, b = f(torch.tensor(values, dtype=torch.float64)).tolist()
    rounding = 50 * 2.0**-53 * max(abs(a), abs(b), 1.0) * max(values) / (values[1] - values[0])
    assert abs(float(gradient[0, 1]) - (b - a) / (values[1] - values[0])) <= rounding


@pytest.mark.parametrize("verb", [sg.matrix_function, sg.singular_value_function])
def test_functions_may_overwrite_their_argument(verb):
    A = torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)).requires_grad_()
    torch.testing.assert_close(verb(A, lambda x: x.mul_(2)).detach(), 2 * A.detach())
    (gradient,) = torch.autograd.grad(verb(A, lambda x: x.mul_(2)).sum(), A)
    torch.testing.assert_close(gradient, torch.full_like(gradient, 2))


def test_a_function_that_stops_being_elementwise_is_noticed():
    net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).double()

    def f(x):
        return net(x.reshape(-1, 1)).reshape(x.shape)

    A = torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64))
    net.eval()
    sg.matrix_function(A, f)
    net.train()
    with pytest.raises((sg.SpectralError, ValueError)):  # BatchNorm1d refuses a single value in training mode itself
        sg.matrix_function(A, f)
