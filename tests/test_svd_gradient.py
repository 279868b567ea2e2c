"""The gradient of the SVD in the kernel: equal to the formula in torch, and used in plain backward passes only."""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd.singular import vectors as singular_vectors
from spectralgrad.native import kernel, library
from spectralgrad.native.derivative_calls import SingularDerivatives
from spectralgrad.solvers import svd_gradient
from spectralgrad.solvers.decompose import choice

from .helpers import REAL, in_turn

NATIVE = kernel()
pytestmark = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built or is switched off")
SQUARE = [(n, n) for n in (1, 2, 3, 9, 11, 12, 16, 65)]
SHAPES = [*SQUARE, (1, 4), (6, 1), (7, 3), (2, 9), (12, 13), (40, 3), (17, 20), (33, 20), (64, 32), (5, 64)]
RULES = [sg.Pade(), sg.Pade(floor=0.3), sg.Pade(faithful=True), sg.Taylor(), sg.Lorentzian(), sg.Masked(), sg.Clip()]
PRESENT = [p for p in product((False, True), repeat=3) if any(p)]


def factors_and_cotangents(shape, dtype, batch=19):
    """Random orthonormal factors, singular values a tenth apart, and random cotangents."""
    generator = torch.Generator().manual_seed(shape[0] * 100 + shape[1])
    M = torch.randn(batch, *shape, dtype=torch.float64, generator=generator)
    U, S, Vh = torch.linalg.svd(M, full_matrices=False)
    S = 1 + 0.1 * torch.arange(S.shape[-1], 0, -1) + 0.0 * S
    factors = tuple(x.to(dtype).contiguous() for x in (U, S, Vh))
    return factors, tuple(torch.randn(x.shape, dtype=torch.float64, generator=generator).to(dtype) for x in factors)


def by_formula(factors, cotangents, rule):
    full = [torch.zeros_like(x) if g is None else g for x, g in zip(factors, cotangents, strict=True)]
    return singular_vectors._formula(*factors, *full, rule)


def fused(factors, cotangents, rule=RULES[0]):
    return svd_gradient(factors, cotangents, rule.fused_gaps, rule.filters_gauge, rule.saturates)


@in_turn("rule, shape", product(RULES, SHAPES), dtype=REAL)
def test_equals_the_formula(rule, shape, dtype):
    factors, cotangents = factors_and_cotangents(shape, dtype)
    K = rule.gaps(factors[1].double()).abs().amax()
    for present in PRESENT:
        given = tuple(g if there else None for g, there in zip(cotangents, present, strict=True))
        expected = by_formula(factors, given, rule)
        # Products of up to max(m, n) terms, amplified by the gap matrix and by 1/s ≤ 1.
        error = (fused(factors, given, rule) - expected).abs().amax()
        size = max(g.abs().amax() for g in given if g is not None)
        assert error <= 8 * max(shape) * (1 + K) * size * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (9, 9), (6, 4), (4, 6), (16, 16), (20, 33), (33, 20)], ids=str)
def test_scales_exactly(shape, dtype):
    """Singular values times 2^k: the gradient of the vectors is divided by it, without overflow or underflow."""
    (U, S, Vh), (gU, _, gVh) = factors_and_cotangents(shape, dtype)
    expected = fused((U, S, Vh), (gU, None, gVh))
    power = 100 if dtype == torch.float32 else 900
    for scale in (2.0**power, 2.0**-power):
        assert torch.equal(fused((U, S * scale, Vh), (gU, None, gVh)) * scale, expected)
    small = 2.0**-power * gU, None, 2.0**-power * gVh
    assert torch.equal(fused((U, S, Vh), small) / 2.0**-power, expected)


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (9, 9), (6, 4), (16, 16), (20, 33)], ids=str)
def test_result_depends_on_neither_neighbours_nor_place_nor_threads(shape):
    factors, cotangents = factors_and_cotangents(shape, torch.float32)
    expected = fused(factors, cotangents)
    threads = torch.get_num_threads()
    for picked in ([4], [5, 3, 8, 1, 2], [*range(18, -1, -1), 7, 0]):
        torch.set_num_threads(1 if len(picked) % 2 else 4)
        spoiled = tuple(torch.cat([x[picked], x[picked] * torch.nan, x[picked]]) for x in cotangents)
        try:
            result = fused(tuple(x[picked].repeat(3, *[1] * (x.dim() - 1)) for x in factors), spoiled)
        finally:
            torch.set_num_threads(threads)
        for part in (result[: len(picked)], result[2 * len(picked) :]):
            assert torch.equal(part, expected[picked])


@pytest.mark.parametrize("shape", [(3, 3), (7, 4), (16, 16), (20, 33)], ids=str)
def test_ties_and_rank_deficiency(shape):
    """Equal singular values and exact zeros: what the formula gives, with couplings at rounding level dropped."""
    (U, S, Vh), cotangents = factors_and_cotangents(shape, torch.float64)
    for values in (torch.ones_like(S), torch.zeros_like(S), S * (torch.arange(S.shape[-1]) < 2)):
        factors = (U, values, Vh)
        symmetric = (U * values.unsqueeze(-2), None, values.unsqueeze(-1) * Vh)  # UᵀŪ = S is symmetric up to rounding
        for given in (cotangents, symmetric):
            expected = by_formula(factors, given := tuple(given), RULES[0])
            assert torch.isfinite(expected).all()
            scale = expected.abs().amax().clamp_min(1)
            assert (fused(factors, given) - expected).abs().amax() <= 64 * max(shape) * torch.finfo(S.dtype).eps * scale


@pytest.fixture
def calls(monkeypatch):
    counted, run = [], SingularDerivatives.factors
    monkeypatch.setattr(SingularDerivatives, "factors", lambda *a: counted.append(a) or run(*a))
    return counted


def loss(M):
    U, S, Vh = sg.svd(M)
    return ((U * S.sin().unsqueeze(-2)) @ Vh).cos().sum()


def test_serves_a_plain_backward_pass(calls):
    M = torch.randn(8, 5, 4, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(loss(M), M)
    assert len(calls) == 1
    (second,) = torch.autograd.grad(loss(M), M, create_graph=True)
    assert_close(torch.func.grad(loss)(M), first)
    assert_close(torch.compile(torch.func.grad(loss), backend="aot_eager")(M), first)
    assert len(calls) == 1
    assert_close(first, second)
    assert second.requires_grad


def test_values_alone_need_one_product(monkeypatch):
    """The gradient of Σσ²/2 is M itself; gaps are not computed, in the kernel or without it."""
    monkeypatch.setattr(sg.Pade, "gaps", lambda self, w: pytest.fail("gaps were computed"))
    for shape in ((8, 5, 4), (8, 4, 5), (3, 20, 20), (3, 17, 40)):
        for off in (False, True):
            monkeypatch.setattr(library, "switched_off", off)
            M = torch.randn(shape, requires_grad=True)
            (sg.svd(M).S.square() / 2).sum().backward()
            assert_close(M.grad, M.detach())


def test_without_the_kernel(monkeypatch):
    M = torch.randn(8, 5, 4, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(loss(M), M)
    monkeypatch.setattr(library, "switched_off", True)
    assert choice.singular_derivatives(*sg.svd(M)[::2], "factors") is None
    assert_close(torch.autograd.grad(loss(M), M)[0], expected)


def test_other_devices_are_left_to_torch():
    """Plans are remembered by shape and type; memory of another device must not reach the kernel."""
    factors, cotangents = factors_and_cotangents((4, 3), torch.float32)
    assert fused(factors, cotangents) is not None
    assert fused(*(tuple(x.to("meta") for x in tensors) for tensors in (factors, cotangents))) is None


def test_a_rule_of_ones_own_is_respected(calls):
    """A subclass of Padé with its own gaps is not taken for Padé, and its own way of weighing is not replaced."""

    @dataclass(frozen=True)
    class Doubled(sg.Pade):
        def gaps(self, w):
            return 2 * super().gaps(w)

    @dataclass(frozen=True)
    class Ignored(sg.Pade):
        def weighed(self, K, coupling):
            return torch.zeros_like(coupling)

    factors, cotangents = factors_and_cotangents((4, 4), torch.float64)
    for rule, fused_calls in ((Doubled(), 1), (Ignored(), 0)):
        calls.clear()
        with torch.no_grad():
            assert_close(singular_vectors._backward(factors, cotangents, rule), by_formula(factors, cotangents, rule))
        assert len(calls) == fused_calls


def test_gauge_warnings_still_come():
    M = torch.eye(3).repeat(4, 1, 1).requires_grad_()
    with sg.diagnostics.gauge_warnings(), pytest.warns(UserWarning, match="choice of vectors"):
        (sg.svd(M).U * torch.arange(9.0).reshape(3, 3)).sum().backward()


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (6, 4), (4, 6), (16, 16), (40, 3), (33, 20), (20, 33)], ids=str)
def test_finite_up_to_overflow(shape, dtype):
    """Cotangents and reciprocal singular values whose product is beyond the type, by both ways."""
    (U, S, Vh), cotangents = factors_and_cotangents(shape, dtype)
    power = 1 if dtype == torch.float32 else 8
    for large in range(60, 121, 6):
        given = tuple(g * 2.0 ** (power * large) for g in cotangents)
        for small in (0, -20, -60, -120):
            factors = (U, S * 2.0 ** (power * small), Vh)
            assert torch.isfinite(fused(factors, given)).all()
            assert torch.isfinite(by_formula(factors, given, RULES[0])).all()
