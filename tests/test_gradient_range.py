"""N16 for the gradients of matrix functions: eigenvalues of very different size, against mpmath."""

import math

import mpmath
import pytest
import torch

import spectralgrad as sg
from spectralgrad.testing import with_spectrum

from .helpers import noise
from .range_references import assert_gradient, blocks_of

pytestmark = pytest.mark.usefixtures("both_ways")

SINGLE, DOUBLE = torch.float32, torch.float64
GRADED = {
    "single 2.5": (SINGLE, 2.5, (1.0, 1e-14, 0.0)),
    "single 1.5": (SINGLE, 1.5, (1.0, 1e-30, 0.5)),
    "single 3.5": (SINGLE, 3.5, (1.0, 1e-15, 2e-15)),
    "single 3": (SINGLE, torch.tensor(3.0), (1.0, 1e-12, 0.0)),
    "single -1.5": (SINGLE, -1.5, (1.0, 1e20, 1e12)),
    "double 2.5": (DOUBLE, 2.5, (1.0, 1e-120, 0.0)),
    "large 2.5": (DOUBLE, 2.5, (1e200, 1.0, 2.0)),
    "large 1.5": (DOUBLE, 1.5, (2.0**1000, 2.0**400, 1.0)),
    "large 0.75": (DOUBLE, 0.75, (2.0**1000, 2.0**400, 1.0)),
    "wide 2.5": (DOUBLE, 2.5, (2.0**400, 1.0, 2.0**-550)),
    "wide 0.75": (DOUBLE, 0.75, (2.0**500, 1.0, 2.0**-450)),
    "wide -0.25": (DOUBLE, -0.25, (2.0**-450, 1.0, 2.0**500)),
    "wide -1.5": (DOUBLE, -1.5, (2.0**-380, 1.0, 2.0**500)),
    "wide single": (SINGLE, 0.75, (1e20, 1e-14, 1e-15)),
    "overflowing 2.5": (DOUBLE, 2.5, (2.0**700, 2.0, 3.0)),
    "overflowing 3": (DOUBLE, 3, (2.0**600, 2.0, 3.0)),
    "overflowing 3, negative": (DOUBLE, 3, (-(2.0**600), -2.0, 3.0)),
    "overflowing -1.5": (DOUBLE, -1.5, (2.0**-600, 2.0**-300, 1.0)),
    "overflowing -2": (DOUBLE, -2, (2.0**-600, -2.0, 3.0)),
    "overflowing single": (SINGLE, 3, (2.0**80, 2.0, 3.0)),
}


def _gradient(f, A, G):
    A = A.clone().requires_grad_()
    return torch.autograd.grad(f(A), A, G)[0]


# An eigensolver finds small eigenvalues to many digits only if the matrix is diagonal.
ROTATED = [name for name in GRADED if "over" not in name and GRADED[name][1] >= 1]
CASES = [*((name, False) for name in GRADED), *((name, True) for name in ROTATED)]


WIDE = {2.25: (2.0**808, 2.0**500, 2.0**15), 2.5: (2.0**670, 2.0**430, 2.0**-266)}


@pytest.mark.parametrize("p", WIDE)
def test_a_rule_between_small_eigenvalues_beside_one_whose_power_overflows(p):
    """The divided difference of the smaller two is far below the largest one. Rules with a floor have none there."""
    A, G = torch.diag(torch.tensor(WIDE[p], dtype=DOUBLE)), noise(3, 3, seed=3)
    found = _gradient(lambda A: sg.matrix_power(A, p, method="svd-inv", rtol=0.0), A, G)
    assert_gradient(found, [x.view(1, 1) for x in A.diagonal()], "power", p, G, 64)


@pytest.mark.parametrize(("name", "turned"), CASES)
def test_powers_of_eigenvalues_of_very_different_size(name, turned):
    dtype, p, sizes = GRADED[name]
    blocks = blocks_of(sizes, dtype, turned)
    A = torch.block_diag(*blocks)
    for G in (torch.ones_like(A), noise(*A.shape, dtype=dtype, seed=3)):
        found = _gradient(lambda A: sg.matrix_power(A, p, rtol=0.0), A, G)
        assert_gradient(found, blocks, "power", float(p), G, 64)


LOGARITHMS = {
    "single": (SINGLE, (1e25, 1e-15, 1.0)),
    "subnormal": (SINGLE, (1.0, 1e-40, 0.5)),
    "double": (DOUBLE, (2.0**500, 2.0**-450, 1.0)),
    "large": (DOUBLE, (2.0**1020, 2.0**100, 2.0**120)),
    "small": (DOUBLE, (2.0**-100, 2.0**-1000, 2.0**-1020)),
}


@pytest.mark.parametrize("method", ["exact", "svd"])
@pytest.mark.parametrize("name", LOGARITHMS)
def test_logarithms_of_eigenvalues_of_very_different_size(name, method):
    dtype, sizes = LOGARITHMS[name]
    blocks = blocks_of(sizes, dtype, turned=False)
    A = torch.block_diag(*blocks)
    for G in (torch.ones_like(A), noise(*A.shape, dtype=dtype, seed=3)):
        found = _gradient(lambda A: sg.matrix_log(A, rtol=0.0, method=method), A, G)
        assert_gradient(found, blocks, "log", None, G, 64)


@pytest.mark.parametrize(("dtype", "sizes"), [(DOUBLE, (1000.0, 1.0, -1.0)), (SINGLE, (95.0, 1.0, 0.5))], ids=str)
def test_exponentials_beside_one_that_overflows(dtype, sizes):
    blocks = blocks_of(sizes, dtype, turned=False)
    A = torch.block_diag(*blocks)
    for G in (torch.ones_like(A), noise(*A.shape, dtype=dtype, seed=3)):
        found = _gradient(lambda A: sg.matrix_exp(A), A, G)
        assert_gradient(found, blocks, "exp", None, G, 64)


def test_the_textbook_gradient_beside_values_that_overflow():
    A, G = torch.diag(torch.tensor([2.0**600, 2.0, 3.0], dtype=DOUBLE)), noise(3, 3, dtype=DOUBLE)
    found = _gradient(lambda A: sg.matrix_power(A, 3, method="svd"), A, G)
    assert_gradient(found, list(A.diagonal().reshape(3, 1, 1)), "power", 3.0, G, 64)


def test_a_power_whose_smaller_values_underflow():
    A = torch.diag(torch.tensor([1.0, 1e-20, 0.0]))
    found = _gradient(lambda A: sg.matrix_power(A, 2.5, rtol=0.0), A, torch.ones(3, 3))
    torch.testing.assert_close(found.diagonal(), torch.tensor([2.5, 2.5e-30, 0.0]), rtol=1e-6, atol=0)
    torch.testing.assert_close(found[0], torch.tensor([2.5, 1.0, 1.0]), rtol=1e-6, atol=0)


SATURATING = ("svd-pade", "masked", "lorentzian:broadening=1e-9", "svd-topn", "svd-inv", "svd-trunc:relative=True")
SCALES = {SINGLE: (-100, -82, 82, 100), DOUBLE: (-1000, -600, 600, 1000)}
METHODS_AND_POWERS = [(method, p) for method in SATURATING for p in (2.0, 1.5, 3.0, -0.7)]


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize(("method", "p"), METHODS_AND_POWERS)
def test_rules_that_saturate_are_exact_at_every_scale(method, p, dtype):
    """f(A) may be beyond the range where its gradient is not; entries beyond the range are clamped."""
    for e in SCALES[dtype]:
        blocks = blocks_of((2.0**e,), dtype)
        G, bits = noise(2, 2, dtype=dtype, seed=3), 1000 if dtype == DOUBLE else 120
        found = _gradient(lambda A: sg.matrix_power(A, p, method=method), blocks[0], G)
        assert bool(found.isfinite().all())
        if abs(e * (p - 1)) < bits:  # otherwise the gradient is not representable
            assert_gradient(found, blocks, "power", p, G, 2000)


@pytest.mark.parametrize(
    "method", ["svd-clip", "svd-trunc", "svd-taylor:clamp=1e-3", "svd-topn:keep=2", "svd-pi:eps=0"]
)
@pytest.mark.parametrize("e", [-100, -82, 50, 82])
def test_thresholds_of_rules_are_those_of_the_true_scale(e, method):
    """A rule with an absolute threshold is not homogeneous; in double precision nothing needs scaling."""
    A, G = torch.block_diag(*blocks_of((2.0**e, 2.0**e * 0.15), SINGLE)), noise(4, 4, dtype=SINGLE)
    single, double = (_gradient(lambda A: sg.matrix_power(A, 2.0, method=method), x, G.to(x)) for x in (A, A.double()))
    torch.testing.assert_close(single.double() / double.abs().max(), double / double.abs().max(), rtol=0, atol=2e-4)


LEARNED = {
    "large": ((1e250, 1e248, 1e249), 1.5, DOUBLE),
    "small": ((2.0**-400, 2.0**-402, 2.0**-410), -1.4, DOUBLE),
    "small, steep": ((2.0**-400, 2.0**-402, 2.0**-410), -2.2, DOUBLE),
    "single": ((1e26, 1e24, 1e25), 1.7, SINGLE),
    "values only": ((1e-30, 3e-30, 5e-30), 1.5, SINGLE),
}


@pytest.mark.parametrize("method", ["exact", "svd", "svd-clip", "svd-taylor", "svd-pi:eps=0", *SATURATING])
@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_exponent_changes_neither_values_nor_gradients(name, method):
    values, p, dtype = LEARNED[name]
    A, q = torch.diag(torch.tensor(values, dtype=dtype)), torch.tensor(p, dtype=dtype, requires_grad=True)
    for G in (torch.ones_like(A), noise(3, 3, dtype=dtype, seed=1)):
        learned, fixed = (lambda A, p=p: sg.matrix_power(A, p, method=method) for p in (q, q.detach()))
        assert torch.equal(learned(A), fixed(A))
        found, expected = _gradient(learned, A, G), _gradient(fixed, A, G)
        assert not bool(found.isnan().any())
        if name == "small, steep" and method not in ("exact", "svd"):  # clamped, each in its way
            assert torch.equal(found.sign(), expected.sign())
            assert bool(found.isfinite().all() & expected.isfinite().all())
        else:
            atol = torch.finfo(dtype).tiny
            torch.testing.assert_close(found, expected, rtol=64 * torch.finfo(dtype).eps, atol=atol)


@pytest.mark.parametrize("method", ["exact", "svd", "svd-clip", "svd-taylor", *SATURATING])
@pytest.mark.parametrize("name", LEARNED)
def test_the_gradient_of_an_exponent_beside_a_matrix_that_overflows(name, method):
    values, p, dtype = LEARNED[name]
    B = with_spectrum([0.3, 0.5, 0.9], dtype=dtype)
    q = torch.tensor(p, dtype=dtype, requires_grad=True)
    both = sg.matrix_power(torch.stack([B, torch.diag(torch.tensor(values, dtype=dtype))]), q, method=method)
    found, own = torch.autograd.grad(both[0].sum(), q, retain_graph=True)[0], torch.autograd.grad(both[1].sum(), q)[0]
    (alone,) = torch.autograd.grad(sg.matrix_power(B, q, method=method).sum(), q)
    torch.testing.assert_close(found, alone, rtol=64 * torch.finfo(dtype).eps, atol=0)
    with mpmath.workdps(40):
        expected = sum(mpmath.mpf(v) ** mpmath.mpf(q.item()) * mpmath.log(v) for v in B.new_tensor(values).tolist())
    wanted = torch.tensor(float(expected), dtype=torch.float64).to(dtype)
    torch.testing.assert_close(own, wanted, rtol=256 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("method", ["exact", "svd", "svd-pade", "lorentzian"])
@pytest.mark.parametrize("e", [-300, 300])
def test_mixed_derivatives_in_matrix_and_exponent_at_large_scales(e, method):
    """f(cA) = cᵖ f(A), so the derivative in p and then in A is cᵖ⁻¹ times that of scale one plus log c times f′(A)."""
    G, H, p = noise(3, 3, seed=1), noise(3, 3, seed=2), torch.tensor(1.5, dtype=DOUBLE, requires_grad=True)

    def derivatives(A):
        A = A.clone().requires_grad_()
        S = (sg.matrix_power(A, p, method=method) * G).sum()
        (gp,) = torch.autograd.grad(S, p, create_graph=True)
        (gA,) = torch.autograd.grad(S, A, create_graph=True)
        mixed = torch.autograd.grad(gp, A, retain_graph=True)[0]
        return gA.detach(), mixed, torch.autograd.grad((gA * H).sum(), p)[0]

    A = with_spectrum([0.3, 0.7, 1.9])
    (plain, mixed, turned), (_, found, found_turned) = derivatives(A), derivatives(A * 2.0**e)
    expected = mixed + e * math.log(2) * plain
    torch.testing.assert_close(found * 2.0 ** (-e / 2), expected, rtol=1e-12, atol=1e-12 * expected.abs().max())
    wanted = turned + e * math.log(2) * (plain * H).sum()
    torch.testing.assert_close(found_turned * 2.0 ** (-e / 2), wanted, rtol=1e-12, atol=0)


EXPONENTIALS = {
    "alone": (800.0, 1.0, 0.5),
    "all": (800.0, 900.0, 1000.0),
    "near": (709.5, 1.0, 0.5),
    "tied": (800.0, 800.0, 1.0),
}


@pytest.mark.parametrize("name", EXPONENTIALS)
def test_derivatives_of_user_functions_that_overflow_are_infinite_with_their_sign(name):
    values = torch.tensor(EXPONENTIALS[name], dtype=DOUBLE)
    f = lambda A, sign=1: sg.matrix_function(A, lambda x: sign * x.exp())  # noqa: E731
    blocks = [x.reshape(1, 1) for x in values]
    for G in (torch.ones(3, 3, dtype=DOUBLE), noise(3, 3, dtype=DOUBLE, seed=4), 1e-5 * noise(3, 3, dtype=DOUBLE)):
        found = _gradient(f, torch.diag(values), G)
        assert torch.equal(_gradient(lambda A: f(A, -1), torch.diag(values), G), -found)
        if name != "all":  # products of e⁸⁰⁰ and small cotangents are not
            assert_gradient(found, blocks, "exp", None, G, 64)
        assert not bool(found.isnan().any())


@pytest.mark.parametrize("method", ["exact", "svd-pade", "svd-clip"])
@pytest.mark.parametrize("learned", [False, True])
def test_the_gradient_of_a_user_function_does_not_depend_on_neighbours_that_overflow(method, learned):
    s = torch.tensor(1.0, dtype=DOUBLE, requires_grad=learned)
    f = lambda A: sg.matrix_function(A, lambda x: (s * x).exp(), method=method)  # noqa: E731
    for near in (with_spectrum([0.3, 0.7, 1.9]), torch.diag(torch.tensor([709.5, 1.0, 0.0], dtype=DOUBLE))):
        far = torch.diag(torch.tensor([800.0, 1.0, 0.0], dtype=DOUBLE))
        G = noise(2, 3, 3, dtype=DOUBLE)
        both = _gradient(f, torch.stack([near, far]), G)
        torch.testing.assert_close(both[0], _gradient(f, near[None], G[:1])[0], rtol=1e-14, atol=0)
        assert torch.equal(both[1], _gradient(f, far[None], G[1:])[0])
        assert torch.equal(f(torch.stack([near, far]))[0], f(near))


@pytest.mark.parametrize("method", ["exact", "svd", "svd-pade", "lorentzian", "svd-clip"])
@pytest.mark.parametrize("tracked", [False, True])
def test_parameters_of_functions_that_overflow(tracked, method):
    s = torch.tensor(1.0, dtype=DOUBLE, requires_grad=True)
    A = torch.diag(torch.tensor([800.0, 1.0, 0.0, 900.0], dtype=DOUBLE)).requires_grad_(tracked)
    B = with_spectrum([0.3, 0.7, 1.9, 2.0])
    f = lambda A: sg.matrix_function(A, lambda x: (s * x).exp(), method=method)  # noqa: E731
    S = f(torch.stack([A, B]))
    with torch.no_grad():
        assert torch.equal(S, f(torch.stack([A, B])))
    assert S[0].diagonal().tolist() == [math.inf, math.exp(1.0), 1.0, math.inf]
    grad = lambda x: torch.autograd.grad(x, s, retain_graph=True)[0]  # noqa: E731
    assert grad(S[0].sum()) == math.inf
    assert grad(-S[0, 3, 3]) == -math.inf
    torch.testing.assert_close(grad(S[0, 1, 1]), torch.tensor(math.exp(1.0), dtype=DOUBLE), rtol=1e-14, atol=0)
    torch.testing.assert_close(grad(S[1].sum()), grad(f(B).sum()), rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("method", ["exact", "mpa", "mtp"])
def test_gradients_of_inverse_roots_at_every_scale(method, dtype):
    """±inf with the sign of the gradient at scale one where it is not representable."""
    A, G = with_spectrum([0.5, 0.8, 1.0], dtype=dtype), noise(3, 3, dtype=dtype)
    f = lambda A: sg.matrix_inv_sqrt(A, method=method)  # noqa: E731
    plain, bits = _gradient(f, A, G).double(), 1024 if dtype == DOUBLE else 128
    for e in (-bits + 30, -bits * 3 // 4, -bits // 2, bits // 2, bits - 10):
        e = e // 2 * 2
        found = _gradient(f, A * 2.0**e, G).double()
        expected = (plain * 2.0 ** (-e / 2) * 2.0**-e).to(dtype).double()
        bound = 2**14 * torch.finfo(dtype).eps * expected.abs().amax().clamp_max(torch.finfo(dtype).max)
        torch.testing.assert_close(found, expected, rtol=0, atol=float(bound) + torch.finfo(dtype).tiny)


@pytest.mark.parametrize("method", ["svd-pade", "masked", "lorentzian", "svd-taylor", "svd-clip"])
@pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128], ids=str)
def test_gradients_of_rotated_matrices_that_saturate_are_finite(dtype, method):
    p = torch.tensor(3.0, dtype=DOUBLE, requires_grad=True)
    for seed in range(40):
        A = with_spectrum([1.0, 0.9, 0.5, 0.1, 1e-3], dtype=dtype, seed=seed) * 2.0 ** (510 + 3 * (seed % 8))
        for q in (3, p):
            g = _gradient(
                lambda A, q=q: sg.matrix_power(A, q, method=method), A, 8 * noise(5, 5, dtype=dtype, seed=seed)
            )
            assert bool(g.isfinite().all())


@pytest.mark.parametrize("method", ["masked", "svd-pade", "lorentzian", "svd-inv", "svd-topn"])
def test_values_at_both_ends_of_the_range_between_eigenvalues_that_a_rule_ignores(method):
    """Eigenvalues of both signs, tied relative to the norm, whose values are +inf and −inf."""
    A = torch.diag(torch.tensor([-1e198, 1e199, 1e215], dtype=DOUBLE))
    for f in (
        lambda A: sg.matrix_power(A, 7, method=method),
        lambda A: sg.matrix_function(A, torch.sinh, method=method),
    ):
        assert bool(_gradient(f, A, noise(3, 3, dtype=DOUBLE)).isfinite().all())
