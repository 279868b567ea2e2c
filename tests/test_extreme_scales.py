"""Matrices whose entries, gaps or reciprocals are at the ends of the type: denormal, tiny, huge."""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.rules import METHODS, GapMethod

from .helpers import DECOMPOSERS, DTYPES, SPECTRA, in_turn, matrix, symmetric_noise

pytestmark = pytest.mark.usefixtures("both_ways")

FLOORS = {torch.float32: 1e-40, torch.float64: 1e-310, torch.complex64: 1e-40, torch.complex128: 1e-310}
POSITIVE = [(name, method) for name in ("sqrt", "inv_sqrt") for method in sg.methods(name)] + [("log", "exact")]


def _singular(d, rank, count, dtype, scale):
    wide = torch.promote_types(dtype, torch.float64)
    X = torch.randn(count, d, rank, dtype=wide, generator=torch.Generator().manual_seed(d))
    return (X @ X.mH * scale).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("d", [3, 6, 20])
def test_rounding_to_denormal_numbers_makes_no_matrix_indefinite(d, count, dtype):
    """Entries are rounded to multiples of the smallest number there, which is no longer relative to the norm."""
    A = _singular(d, 2, count, dtype, FLOORS[dtype])
    for name, method in POSITIVE:
        S = getattr(sg, f"matrix_{name}")(A, method=method)
        if name == "sqrt":
            assert bool(torch.isfinite(torch.view_as_real(S) if S.is_complex() else S).all())
    # n products of √A are off by n roundings of the norm and n of the smallest number
    root = sg.matrix_sqrt(A)
    info, wide = torch.finfo(dtype), torch.promote_types(dtype, torch.float64)
    if wide != dtype:
        square = root.to(wide) @ root.to(wide)
        assert_close(square, A.to(wide), rtol=0, atol=16 * d * info.tiny * info.eps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("d", [3, 6, 20])
def test_clearly_negative_denormal_eigenvalues_are_still_refused(d, count, dtype):
    A = torch.diag(torch.linspace(-1, 1, d, dtype=torch.float64) * FLOORS[dtype]).to(dtype).expand(count, d, d)
    for method in ("exact", "svd-taylor", "newton-schulz"):
        with pytest.raises(sg.IndefiniteError):
            sg.matrix_sqrt(A, method=method)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_acceptance_of_denormal_decompositions(dtype):
    A = _singular(5, 5, 1, dtype, FLOORS[dtype])[0]
    assert sg.solvers.eigh_ratio(A, torch.linalg.eigh(A)) < 30 / (FLOORS[dtype] / torch.finfo(dtype).tiny)


@pytest.mark.parametrize("shape", [(5, 5), (8, 3), (3, 8)])
@pytest.mark.parametrize("scale", [1e-43, 1e-40, 1e-38, 1e-30, 1e30, 1e38])
def test_polar_factor_of_single_precision_at_every_scale(scale, shape):
    M = (torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)).double() * scale).float()
    expected = sg.polar(M.double())
    tolerance = 64 * torch.finfo(torch.float32).eps
    for x, wanted in ((M, expected), (M[0], expected[0])):
        assert_close(sg.polar(x).double(), wanted, rtol=0, atol=tolerance)
        for method in ("gram", "svd"):
            assert_close(sg.optim.nearest_orthogonal(x, method=method).double(), wanted, rtol=0, atol=tolerance)


@in_turn(
    "scale, method",
    product([1e-44, 1e-42, 1e-40, 1e-38, 1e38], ["gram", "svd", "polynomial"]),
    keep_norm=[False, True],
    deficient=[False, True],
)
def test_nog_writes_no_nan_for_gradients_of_any_size(scale, method, keep_norm, deficient):
    layer = torch.nn.Linear(6, 4, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    sg.optim.NearestOrthogonalGradient(optimizer, layer, method=method, keep_norm=keep_norm)
    G = torch.linalg.qr(torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0].mT
    if deficient:
        G[3] = G[0]  # a direction that is not there
    layer.weight.grad = (G * scale).float()
    optimizer.step()
    assert bool(torch.isfinite(layer.weight.grad).all())
    if not keep_norm and method != "polynomial" and scale > 1e-43:
        values = torch.linalg.svdvals(layer.weight.grad)
        assert_close(values, torch.tensor([1.0, 1, 1, 0 if deficient else 1]), rtol=0, atol=1e-5)


def _gradient(f, A, G):
    A = A.clone().requires_grad_()
    return torch.autograd.grad(f(A), A, G)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "f",
    [
        sg.matrix_exp,
        lambda A: sg.matrix_function(A, torch.tanh),
        lambda A: sg.matrix_function(A, torch.sin, torch.cos),
        lambda A: sg.matrix_function(A, lambda x: 1 / (1 + x), lambda x: -1 / (1 + x).square()),
    ],
    ids=["exp", "tanh", "sin", "inverse"],
)
def test_eigenvalues_that_differ_by_a_denormal_number_are_tied(f, dtype):
    """f[0, 1e-40] is f'(0) to rounding, so the gradient is that of diag(0, 0, 1)."""
    G = torch.randn(3, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    tied = torch.diag(torch.tensor([0.0, 0.0, 1.0], dtype=dtype))
    for gap in (FLOORS[dtype], FLOORS[dtype] / 1e3, torch.finfo(dtype).tiny):
        A = torch.diag(torch.tensor([0.0, gap, 1.0], dtype=dtype))
        for batch in (1, 4):
            g = _gradient(f, A.expand(batch, 3, 3), G.expand(batch, 3, 3))
            assert_close(g, _gradient(f, tied, G).expand(batch, 3, 3), rtol=0, atol=1e2 * torch.finfo(dtype).eps)


def test_second_derivatives_where_eigenvalues_differ_by_a_denormal_number():
    G, E = (torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    results = []
    for gap in (0.0, 1e-40):
        A = torch.diag(torch.tensor([0.0, gap, 1.0])).requires_grad_()
        (g,) = torch.autograd.grad(sg.matrix_exp(A), A, G, create_graph=True)
        results.append(torch.autograd.grad(g, A, E)[0])
    assert_close(*results, rtol=0, atol=1e-5)


@pytest.mark.parametrize("p", [0.3, 0.8])
def test_powers_of_denormal_matrices_have_their_gradient(p):
    """λ^(p−1) is far inside the type, 1/(λi − λj) is not."""
    A = torch.diag(torch.tensor([1e-40, 3e-40, 9e-40]))
    G = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    f = lambda X: sg.matrix_power(X, p)  # noqa: E731
    assert_close(_gradient(f, A, G).double(), _gradient(f, A.double(), G.double()), rtol=1e-3, atol=0)


GAP_RULES = [
    *(kind() for kind in METHODS.values() if issubclass(kind, GapMethod) and kind.name != "svd"),
    sg.Clip(relative=True),
    sg.Trunc(relative=True, faithful=True),
    sg.Taylor(degree=100, faithful=True),
    sg.Lorentzian(broadening=1e-30),
    sg.Masked(tolerance=0.0),
    sg.Pade(floor=1e-30),
]


@in_turn("rule", GAP_RULES, scale=[1e-45, 1e-42, 1e-40, 1e-38, 1e-30, 1e-26, 1e30])
def test_gap_matrices_and_their_bounds_saturate(rule, scale):
    for spectrum in ([0.0, 1.0, 2.0, 2.0, 5.0], [1.0, 1.0 + 1e-7, 3.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0, 1.0]):
        w = (torch.tensor(spectrum, dtype=torch.float64) * scale).float()
        K, bound = rule.gaps(w), rule.bound(w)
        assert bool(torch.isfinite(K).all())
        assert bool((K.abs() <= bound * (1 + 1e-6)).all())
        assert bool(torch.isfinite(bound)) or type(rule).bound is GapMethod.bound  # the rule has none


@in_turn("method", [m for m in DECOMPOSERS if m != "svd"], scale=[1e-44, 1e-40, 1e-38, 1e-34, 1e-26, 1e-20, 1e20, 1e30])
def test_gradients_of_decompositions_are_finite_at_every_scale(method, scale):
    """Where the true one, of the size of one over the gap, leaves the type it saturates."""
    for spectrum in SPECTRA:
        A = (matrix(spectrum) * scale).float().requires_grad_()
        w, V = sg.eigh(A, method=method)
        H = symmetric_noise(6, torch.float32)
        (g,) = torch.autograd.grad((V * H).sum() + (w * torch.arange(6)).sum(), A)
        assert bool(torch.isfinite(g).all())
        if method in sg.methods("svd"):
            M = A.detach()[:, :4].clone().requires_grad_()
            U, S, Vh = sg.svd(M, method=method)
            assert bool(torch.isfinite(torch.autograd.grad(U.sum() + Vh.sum() + S.sum(), M)[0]).all())


CHANNELS = torch.randn(4, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
REPEATED = {
    "ones": torch.ones(5, 5, dtype=torch.float64),
    "twenty ones": torch.ones(20, 20, dtype=torch.float64),
    "duplicated channels": torch.cov(CHANNELS.repeat(2, 1)),
    "few samples": CHANNELS.mT @ CHANNELS,
}


@in_turn(
    "name",
    REPEATED,
    dtype=DTYPES,
    method=[sg.PI(), sg.PI(eps=0.0), sg.SVDPI(unrolled=True), sg.SVDPI(unrolled=True, eps=0.0)],
)
def test_power_iteration_does_not_differentiate_the_rounding_of_its_deflation(name, dtype, method):
    A = REPEATED[name].to(dtype)
    g = _gradient(lambda X: sg.matrix_sqrt(X, method=method), A, torch.ones_like(A))
    assert bool(torch.isfinite(torch.view_as_real(g) if g.is_complex() else g).all())
    assert float(g.abs().amax()) < 1e3


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_power_iteration_at_extreme_scales(scale):
    A = torch.ones(5, 5) * scale
    f = lambda X: sg.matrix_sqrt(X, method=sg.PI(eps=0.0))  # noqa: E731
    G = torch.ones(5, 5)
    assert_close(f(A), sg.matrix_sqrt(A), rtol=1e-5, atol=0)
    assert_close(_gradient(f, A, G), _gradient(sg.matrix_sqrt, A, G), rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_taylor_roots_of_denormal_matrices_have_finite_gradients(dtype):
    """1/λ overflows where 1/√λ, the size of the gradient, does not."""
    w = torch.tensor([0.4, 1.5], dtype=dtype) * (torch.finfo(dtype).tiny / 4096)
    A = torch.diag(w).expand(8, 2, 2).clone().requires_grad_()
    (g,) = torch.autograd.grad(sg.matrix_sqrt(A, method="svd-taylor").sum(), A)
    assert g.isfinite().all()
    assert_close(g[0].diagonal(), w.rsqrt() / 2, rtol=1e-2, atol=0)
