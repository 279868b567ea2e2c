"""Polar Express and Muon's quintic: the coefficients are optimal, the errors those that the documentation states."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.rules.polar_iterations import minimax_quintic, polar_express_quintics
from spectralgrad.testing import random_orthogonal

from .helpers import DTYPES, gradient, unit

ITERATIONS = [name for name in sg.methods("polar") if name != "exact"]


def composed(quintics, x):
    for a, b, c in quintics:
        x = a * x + b * x**3 + c * x**5
    return x


@pytest.mark.parametrize("low", [1e-3, 0.024, 0.3, 0.9])
def test_the_quintic_equioscillates_so_it_is_the_best(low):
    """Chebyshev's criterion: four alternating extrema of equal size for three coefficients."""
    x = np.linspace(low, 1, 200001)
    error = 1 - composed([minimax_quintic(low, 1.0)], x)
    inner = np.flatnonzero(np.diff(np.sign(np.diff(error)))) + 1
    extrema = error[[0, *inner, -1]]
    assert len(extrema) == 4
    assert np.all(extrema[1:] * extrema[:-1] < 0)
    np.testing.assert_allclose(abs(extrema), abs(error).max(), rtol=1e-6)


def test_the_error_of_a_composition_is_that_of_its_ends():
    quintics = polar_express_quintics(5, 1e-3, cushion=0.0, safety=1.0)
    x = np.geomspace(1e-3, 1, 200001)
    error = 1 - composed(quintics, x)
    np.testing.assert_allclose(abs(error).max(), error[0], rtol=1e-6)
    assert error[0] == pytest.approx(0.1134, abs=1e-4)


def test_steps_converge_to_those_of_newton_schulz():
    np.testing.assert_allclose(
        polar_express_quintics(10, 1e-3, 0.02407327424182761, 1.0)[-1], (15 / 8, -10 / 8, 3 / 8), rtol=1e-6
    )


# The coefficients that the paper prints (arXiv 2505.16932, the listing in its introduction), without safety factor.
LISTING = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
)


@pytest.mark.parametrize("steps", [5, 8, 10])
def test_the_coefficients_are_those_that_the_paper_prints(steps):
    """Later steps move an interval whose width is near rounding, so their coefficients agree to fewer digits."""
    printed = (LISTING + LISTING[-1:] * 2)[:steps]
    np.testing.assert_allclose(sg.PolarExpress(steps, safety=1.0).quintics, printed, rtol=1e-8)
    guarded = [[x / 1.01 ** (2 * k + 1) for k, x in enumerate(p)] for p in printed]
    np.testing.assert_allclose(sg.PolarExpress(steps, faithful=True).quintics, [*guarded[:7], *printed[7:]], rtol=1e-8)
    np.testing.assert_allclose(sg.PolarExpress(steps).quintics, [*guarded[:-1], printed[-1]], rtol=1e-8)


@pytest.mark.parametrize(("faithful", "worst"), [(False, 0.148), (True, 0.154)])
def test_the_worst_error_of_the_defaults(faithful, worst):
    error = 1 - composed(sg.PolarExpress(faithful=faithful).quintics, np.geomspace(1e-3, 1, 100001))
    assert abs(error).max() == pytest.approx(worst, abs=5e-4)


@pytest.mark.parametrize("name", ITERATIONS)
def test_singular_values_are_those_of_the_polynomial(name):
    U, V, s = random_orthogonal(6), random_orthogonal(5, seed=1), torch.linspace(0.1, 1, 5, dtype=torch.float64)
    M = (U[:, :5] * s) @ V
    quintics = sg.PolarExpress().quintics if name == "polar-express" else ((3.4445, -4.7750, 2.0315),) * 5
    margin = 1.01 if name == "polar-express" else 1.0
    values = composed(quintics, s / (margin * s.norm()))
    for X, expected in (
        (M, (U[:, :5] * values) @ V),
        (M.mT, ((U[:, :5] * values) @ V).mT),
        (M * 1e200, (U[:, :5] * values) @ V),
    ):
        assert_close(sg.polar(X, method=name), expected)


def test_eight_steps_are_exact_to_rounding_with_their_gradient_and_five_are_not():
    """Singular values from 1 to 1/10; what docs/rotations.md states."""
    U, V = random_orthogonal(32), random_orthogonal(32, seed=1)
    M = (U * torch.logspace(0, -1, 32, dtype=torch.float64)) @ V
    G = torch.randn(32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = gradient(sg.polar, M, G)

    def errors(method):
        f = lambda X: sg.polar(X, method=method)  # noqa: E731
        spread = (torch.linalg.svdvals(f(M)) - 1).abs().max()
        return float(spread), float((gradient(f, M, G) - exact).norm() / exact.norm())

    assert max(errors("polar-express:steps=8")) < 1e-13
    spread, slope = errors("polar-express")
    assert 0.1 < spread < 0.15
    assert slope > 1
    assert errors("muon")[0] > 0.3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ITERATIONS)
def test_iterations_follow_the_contract(name, dtype):
    f = lambda X: sg.polar(X, method=name)  # noqa: E731
    generator = torch.Generator().manual_seed(0)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    M = torch.randn(2, 4, 3, dtype=wide, generator=generator).to(dtype)
    for X in (M, 0 * M, M[:0], M.mT, M[..., :0], M[..., :1, :1]):
        leaf = X.clone().requires_grad_()
        value = f(leaf)
        (g,) = torch.autograd.grad(value.abs().square().sum(), leaf)
        assert value.shape == g.shape == X.shape
        assert bool(torch.isfinite(value).all())
        assert bool(torch.isfinite(g).all())
    for c in (2.0**60, 2.0**-60):
        assert_close(f(M * c), f(M), rtol=0, atol=64 * unit(dtype))
    if dtype in (torch.float64, torch.complex128):
        assert gradcheck(f, (M[:1].clone().requires_grad_(),), check_forward_ad=True)
    if dtype == torch.float32:
        assert_close(f(M.bfloat16()), f(M.bfloat16().float()).bfloat16())
        assert_close(torch.func.vmap(f)(M), f(M))
        torch._dynamo.reset()
        assert_close(torch.compile(f, fullgraph=True, backend="aot_eager")(M), f(M))
    M[1, 0, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match="position 1"):
        f(M)


def test_bad_parameters_are_refused():
    for bad in ({"steps": 0}, {"lowest": 0.0}, {"cushion": 1.0}, {"safety": 0.9}):
        with pytest.raises(sg.MethodError, match=next(iter(bad))):
            sg.PolarExpress(**bad)
    with pytest.raises(sg.MethodError, match="not available for polar"):
        sg.polar(torch.eye(2), method="newton-schulz")
