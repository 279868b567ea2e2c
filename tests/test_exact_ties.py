"""Eigenvalues of multiplicity eight with exact eigenpairs: what each rule makes of the tied entries."""

import pytest
import scipy.linalg
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd.functions import scalar_functions
from spectralgrad.autograd.functions.domain import Spectrum
from spectralgrad.testing import relative_error

from .helpers import gradient, symmetric_noise

pytestmark = pytest.mark.usefixtures("both_ways")

HADAMARD = {
    sg.Taylor(): (0.0, 0.63),
    sg.Taylor(faithful=True): (-40.0, 26),
    sg.Taylor(degree=100, faithful=True): (-404.0, 250),
    sg.Trunc(faithful=True): (None, 3e8),
}


def hadamard_gradient(rule):
    """Exact eigenpairs: an orthonormal Hadamard basis and eight dyadic eigenvalues of multiplicity eight."""
    V = torch.from_numpy(scipy.linalg.hadamard(64) / 8.0)
    w = (2.0 ** torch.arange(-7, 1, dtype=torch.float64)).repeat_interleave(8)
    G = symmetric_noise(64, seed=0)
    exact_pairs = Spectrum(w, V, torch.ones(64, dtype=torch.bool))
    A = (V * w) @ V.mT
    g = gradient(lambda M: rule.compose(M, scalar_functions.INV_SQRT, exact_pairs), A, G)
    s = w.sqrt()
    truth = V @ (-(V.mT @ G @ V) / (s * s[:, None] * (s + s[:, None]))) @ V.mT
    return g, truth, w, V


def test_exact_ties_cost_divided_differences_nothing():
    """Eight eigenvalues of multiplicity eight, exact eigenpairs: the exact gradient errs by rounding only."""
    g, truth, _, _ = hadamard_gradient(sg.Exact())
    assert relative_error(g, truth) < 16 * torch.finfo(torch.float64).eps


@pytest.mark.parametrize("rule", HADAMARD, ids=str)
def test_exact_ties_under_the_released_rules(rule):
    """The same: Taylor-9 errs by 0.63, with the released signs by 26, Taylor-100 by 250, truncation by 3e8."""
    g, truth, w, V = hadamard_gradient(rule)
    at_ties, expected = HADAMARD[rule]
    assert relative_error(g, truth) == pytest.approx(expected, rel=0.25)
    tied = (w == w[:, None]) & ~torch.eye(64, dtype=torch.bool)
    ratio = ((V.mT @ g @ V) / (V.mT @ truth @ V))[tied]
    factor = -4e10 * w[:, None].expand(64, 64)[tied] if at_ties is None else torch.full_like(ratio, at_ties)
    assert_close(ratio, factor, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("formula", [False, True], ids=["plain backward", "formula"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("f", [lambda A: sg.eigh(A).eigenvectors, lambda A: sg.svd(A).U], ids=["eigh", "svd"])
def test_what_counts_as_noise_does_not_depend_on_the_size_of_the_cotangent(f, dtype, formula):
    """Values that are tied up to rounding: squares of cotangents that overflow change nothing."""
    A = torch.diag(1 + 8 * torch.finfo(dtype).eps * torch.arange(5, dtype=dtype)).requires_grad_()
    G = torch.randn(5, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    V = f(A)
    level = V.detach() @ torch.full((5, 5), torch.finfo(dtype).eps, dtype=dtype).triu(1)  # rounding error of V
    for cotangent, dropped in ((G, False), (V.detach() + level, True)):
        (g,) = torch.autograd.grad(V, A, cotangent, retain_graph=True, create_graph=formula)
        assert bool(g.abs().amax() < 1) == dropped
        for power in (80, -80) if dtype == torch.float32 else (640, -640):
            (scaled,) = torch.autograd.grad(V, A, cotangent * 2.0**power, retain_graph=True, create_graph=formula)
            assert_close(scaled * 2.0**-power, g, rtol=1e-3 if dropped else 1e-6, atol=0)
