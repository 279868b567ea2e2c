"""G1–G10: the Daleckiĭ–Kreĭn gradient, what the papers' rules do to it, and each rule against its formula."""

import numpy as np
import pytest
import scipy.linalg
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd import scalar_functions
from spectralgrad.autograd.spectra import Spectrum
from spectralgrad.testing import Reference, paired_spectrum, relative_error, with_spectrum

from .helpers import (
    EPS,
    KEEP_ALL,
    SPECTRUM,
    eq2,
    from_mp,
    gaussian,
    gradient,
    mp,
    mp_eigensystem,
    mp_gaps,
    mp_matrix,
    mp_rule_gradient,
    paired,
    sym,
    tensor,
    vector_gradient,
)

ROOTS = {"sqrt": sg.matrix_sqrt, "inv_sqrt": sg.matrix_inv_sqrt}
EXPONENT = {"sqrt": 0.5, "inv_sqrt": -0.5}


def by_autograd(decompose):
    """A^(-1/2) composed from a decomposition, so that autograd meets every gap."""

    def root(A):
        w, V = decompose(A)
        return (V / w.sqrt()) @ V.mT

    return root


def svd_pairs(svd):
    def pairs(A):
        _, S, Vh = svd(A)
        return S, Vh.mT

    return pairs


PLAIN = {
    "torch-eigh": by_autograd(torch.linalg.eigh),
    "torch-svd": by_autograd(svd_pairs(torch.linalg.svd)),
    "eigh": by_autograd(lambda A: sg.eigh(A, method="svd")),
    "svd": by_autograd(svd_pairs(lambda A: sg.svd(A, method="svd"))),
    "fused": lambda A: sg.matrix_inv_sqrt(A, method="svd"),
}

# --- the papers' rules against their formulas -------------------------------------------------------------------------

RULES = [
    sg.Analytic(),
    sg.Clip(),
    sg.Trunc(),
    sg.TopN(keep=5),
    sg.Taylor(),
    sg.Taylor(degree=100),
    sg.Pade(),
    sg.SVDPI(),
    sg.Lorentzian(),
    sg.Masked(),
    sg.Clip(threshold=10.0),
    sg.Trunc(threshold=30.0),
    sg.Taylor(degree=3),
    sg.Pade(floor=0.1),
    sg.SVDPI(iterations=3),
    sg.Lorentzian(broadening=0.05),
    sg.Masked(tolerance=0.03),
]
SPECTRA = {
    "spread": SPECTRUM,
    "wide": sorted(10.0 ** np.linspace(-12, 0, 8)),
    "pairs-1e-3": sorted(paired_spectrum(8, 1e2, 1e-3)),
    "pairs-1e-9": sorted(paired_spectrum(8, 1e6, 1e-9)),
    "cluster-1e-12": sorted(1 - 1e-12 * np.arange(8)),
    "ties": [0.1, 0.1, 0.3, 0.5, 0.5, 0.5, 1.0, 1.0],
}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_g2_rule_equals_its_formula_at_50_digits(rule, spectrum):
    """Every entry of K̂ is the paper's formula, summed term by term at 50 digits, to 1e-12."""
    w = tensor(*SPECTRA[spectrum])
    assert_close(rule.gaps(w), from_mp(mp_gaps(rule, w.tolist())), rtol=1e-12, atol=0)


def kept(rule, w):
    """Which eigenpairs the papers keep: all, the N largest, or those before Algorithm 1 stops."""
    if isinstance(rule, sg.TopN):
        return [i >= len(w) - rule.keep for i in range(len(w))]
    if isinstance(rule, sg.SVDPI):
        share = [mp.fsum(w[i:]) / mp.fsum(w) for i in range(len(w))]
        return [x > rule.eps and s < rule.energy for x, s in zip(w, share, strict=True)]
    return [True] * len(w)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_g2_eigh_gradient_equals_its_formula_at_50_digits(rule):
    """The gradient of ⟨V, H⟩ + ⟨λ, h⟩ is sym(Eq. 2) with the rule's K̂ over the kept pairs, to 1e-12."""
    A, H, h = with_spectrum(SPECTRUM), gaussian(8, 8, seed=2), gaussian(8, seed=3)

    def loss(M):
        w, V = sg.eigh(M, method=rule)
        return (V * H).sum() + (w * h).sum()

    w, V = mp_eigensystem(A)
    mask = mp.diag([int(k) for k in kept(rule, w)])
    coupling, diagonal = V.T * mp_matrix(H) * mask, mask * mp.matrix(h.tolist())
    assert relative_error(gradient(loss, A), mp_rule_gradient(V, mp_gaps(rule, w), coupling, diagonal)) < 1e-12


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_g2_root_gradient_equals_its_formula_at_50_digits(rule, root):
    """The gradient of a root by a rule is ICCV Eq. 4–5 (dL/dV = 2GVF) with the rule's K̂, to 1e-12."""
    A, G, p = with_spectrum(SPECTRUM), sym(gaussian(8, 8, seed=2)), mp.mpf(EXPONENT[root])
    w, V = mp_eigensystem(A)
    keep = kept(rule, w)
    T = V.T * mp_matrix(G) * V
    coupling = 2 * T * mp.diag([x**p * k for x, k in zip(w, keep, strict=True)])
    diagonal = [p * x ** (p - 1) * T[i, i] * k for i, (x, k) in enumerate(zip(w, keep, strict=True))]
    g = gradient(lambda M: ROOTS[root](M, method=rule), A, G)
    assert relative_error(g, mp_rule_gradient(V, mp_gaps(rule, w), coupling, diagonal)) < 1e-12


@pytest.mark.parametrize("rule", [r for r in RULES if "svd" in r.operations], ids=str)
def test_g5_svd_of_a_positive_matrix_has_the_gradient_of_eigh(rule):
    """For a positive definite matrix the rule gives the same gradient through svd as through eigh."""
    A, H = with_spectrum(SPECTRUM), gaussian(8, 8, seed=2)
    signs = torch.sign((sg.svd(A).Vh.mT.flip(-1) * sg.eigh(A).eigenvectors).sum(0))
    through_svd = gradient(lambda M: sg.svd(M, method=rule).Vh.mT.flip(-1) * signs, A, H)
    assert relative_error(sym(through_svd), vector_gradient(A, rule, H)) < 1e-12


# --- the law ----------------------------------------------------------------------------------------------------------


def test_g1_reference_solves_the_lyapunov_equation():
    """The reference gradient X of √A satisfies SX + XS = G to 1e-45 and a difference quotient to 1e-28."""
    A, reference, G = paired(1e2, 1e-6)
    w, V = mp_eigensystem(A)
    s = [mp.sqrt(x) for x in w]
    T = V.T * mp_matrix(G) * V
    X = V * mp.matrix([[T[i, j] / (s[i] + s[j]) for j in range(8)] for i in range(8)]) * V.T
    S = V * mp.diag(s) * V.T
    assert mp.mnorm(S * X + X * S - mp_matrix(G), "f") < mp.mpf(10) ** -45
    assert_close(reference.gradient("sqrt", G), from_mp(X), rtol=4 * EPS, atol=0)

    def inner(M):
        values, vectors = mp.eigsy(M)
        root = vectors * mp.diag([mp.sqrt(x) for x in values]) * vectors.T
        return mp.fsum(root[i, j] * mp.mpf(G[i, j].item()) for i in range(8) for j in range(8))

    step, Z = mp.mpf(10) ** -20, mp_matrix(sym(gaussian(8, 8, seed=4)))
    quotient = (inner(mp_matrix(A) + step * Z) - inner(mp_matrix(A) - step * Z)) / (2 * step)
    slope = mp.fsum(X[i, j] * Z[i, j] for i in range(8) for j in range(8))
    assert abs(quotient / slope - 1) < mp.mpf(10) ** -28


FACTORS = {
    sg.Analytic(): lambda x, g: 1.0 + 0 * x,
    sg.Pade(): lambda x, g: 1.0 + 0 * x,
    sg.Taylor(): lambda x, g: 1 - x**10,
    sg.Taylor(degree=100): lambda x, g: 1 - x**101,
    sg.Clip(threshold=50.0): lambda x, g: torch.clamp(50 * g, max=1),
    sg.Lorentzian(broadening=0.05): lambda x, g: g**2 / (g**2 + 0.05**2),
    sg.Masked(tolerance=0.02): lambda x, g: (g > 0.02).double(),
}


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("rule", FACTORS, ids=str)
def test_g2_rule_multiplies_true_gradient(rule, root):
    """In the eigenbasis a skew rule multiplies the true gradient entrywise by K̂(λi − λj), to 1e-10."""
    A, G = with_spectrum(SPECTRUM), sym(gaussian(8, 8, seed=2))
    w, V = sg.eigh(A)
    true, got = (V.mT @ gradient(lambda M, m=m: ROOTS[root](M, method=m), A, G) @ V for m in ("exact", rule))
    low, high = torch.minimum(w, w[:, None]), torch.maximum(w, w[:, None])
    factor = FACTORS[rule](low / high, high - low).fill_diagonal_(1)
    assert_close(got / true, factor, rtol=0, atol=1e-10)
    assert_close(1 - rule.bias(w), factor, rtol=0, atol=1e-10)


@pytest.mark.parametrize("gap", [1e-2, 1e-6, 1e-10])
def test_g3_only_the_unsymmetrised_formula_explodes(gap):
    """Eq. 2 unsymmetrised grows like 1/gap for a matrix function; its symmetric part keeps the true size."""
    A, reference, G = paired(1e2, gap)
    w, V = sg.eigh(A)
    raw = eq2(V, sg.Analytic().gaps(w), 2 * G @ V * w.sqrt(), (V.mT @ G @ V).diagonal() / (2 * w.sqrt()))
    true = reference.gradient("sqrt", G).norm()
    assert 0.1 < raw.norm() / true * gap < 10
    assert sym(raw).norm() / true == pytest.approx(1, abs=100 * EPS / gap)


def test_g4_torch_and_method_svd_return_the_symmetric_part_of_eq_2(monkeypatch):
    """The backward of torch.linalg.eigh, and ours with method svd, is sym(Eq. 2) to 1e-12."""
    monkeypatch.setenv("SPECTRALGRAD_NATIVE", "0")  # the loss depends on the signs of torch's vectors
    A, H = with_spectrum(SPECTRUM[:6]), gaussian(6, 6, seed=2)
    w, V = torch.linalg.eigh(A)
    expected = sym(eq2(V, sg.Analytic().gaps(w), H))
    assert relative_error(gradient(lambda M: torch.linalg.eigh(M).eigenvectors, A, H), expected) < 1e-12
    assert relative_error(vector_gradient(A, "svd", H), expected) < 1e-12


@pytest.mark.parametrize("gap", [1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("way", PLAIN)
def test_g5_g6_plain_error_is_rounding_over_gap(way, gap):
    """The plain gradient of A^(-1/2) errs by about u/gap, whichever decomposition it goes through."""
    A, reference, G = paired(1e2, gap)
    error = relative_error(sym(gradient(PLAIN[way], A, G)), reference.gradient("inv_sqrt", G))
    assert 1e-3 < error * gap / EPS < 100


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
@pytest.mark.parametrize("gap", [1e-2, 1e-6, 1e-10, 1e-14, 0.0])
def test_g7_exact_error_does_not_depend_on_the_gap(gap, condition, root):
    """Divided differences err by less than 1e-12·cond/100 at every gap."""
    A, reference, G = paired(condition, gap)
    error = relative_error(gradient(ROOTS[root], A, G), reference.gradient(root, G))
    assert error < 1e-12 * condition / 1e2


@pytest.mark.parametrize(
    ("rule", "gap"),
    [(sg.Taylor(), 1e-4), (sg.Taylor(degree=100), 1e-4), (sg.Clip(), 1e-4), (sg.Trunc(), 1e-12)],
    ids=str,
)
def test_g8_taylor_and_clip_errors_do_not_vanish_in_float64(rule, gap):
    """Taylor, clipping and truncation leave more than 5 % error however precise the arithmetic."""
    A, reference, G = paired(1e2, gap)
    g = gradient(lambda M: sg.matrix_inv_sqrt(M, method=rule), A, G)
    assert 0.05 < relative_error(g, reference.gradient("inv_sqrt", G)) < 1


@pytest.mark.parametrize("root", ROOTS)
def test_g9_identity_is_nan_for_autograd_and_exact_for_divided_differences(root):
    """At A = I autograd through eigh is NaN; the exact gradient is f'(1)G."""
    A, G, p = torch.eye(8, dtype=torch.float64), sym(gaussian(8, 8)), EXPONENT[root]
    for eigh in (torch.linalg.eigh, lambda M: sg.eigh(M, method="svd")):
        g = gradient(lambda M, eigh=eigh: (lambda w, V: (V * w**p) @ V.mT)(*eigh(M)), A, G)
        assert g.isnan().any()
    assert torch.equal(gradient(ROOTS[root], A, G), p * G)


# --- ties -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [9, 100])
@pytest.mark.parametrize("p", [-0.5, 0.5, 0.25])
def test_g10_released_sign_rule_multiplies_ties_by_2_degree_plus_2_over_p(p, degree):
    """At a tie the skew rule returns 0 and the released one 2(K+1)/p times the true entry (−40 for A^(-1/2), K = 9)."""
    A, G = 0.25 * torch.eye(6, dtype=torch.float64), sym(gaussian(6, 6))
    off = ~torch.eye(6, dtype=torch.bool)

    def ratio(method):
        true, got = (gradient(lambda M, m=m: sg.matrix_power(M, p, method=m), A, G) for m in ("exact", method))
        return (got / true)[off]

    assert torch.equal(ratio(sg.Taylor(degree=degree)), torch.zeros(30, dtype=torch.float64))
    released = ratio(sg.Taylor(degree=degree, faithful=True))
    assert_close(released, torch.full_like(released, 2 * (degree + 1) / p), rtol=1e-12, atol=0)


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
    G = sym(gaussian(64, 64))
    exact_pairs = Spectrum(w, V, torch.ones(64, dtype=torch.bool))
    A = (V * w) @ V.mT
    g = gradient(lambda M: rule.compose(M, scalar_functions.INV_SQRT, exact_pairs), A, G)
    s = w.sqrt()
    truth = V @ (-(V.mT @ G @ V) / (s * s[:, None] * (s + s[:, None]))) @ V.mT
    return g, truth, w, V


def test_g10_exact_ties_cost_divided_differences_nothing():
    """Eight eigenvalues of multiplicity eight, exact eigenpairs: the exact gradient errs by rounding only."""
    g, truth, _, _ = hadamard_gradient(sg.Exact())
    assert relative_error(g, truth) < 16 * EPS


@pytest.mark.parametrize("rule", HADAMARD, ids=str)
def test_g10_exact_ties_under_the_released_rules(rule):
    """The same: Taylor-9 errs by 0.63, with the released signs by 26, Taylor-100 by 250, truncation by 3e8."""
    g, truth, w, V = hadamard_gradient(rule)
    at_ties, expected = HADAMARD[rule]
    assert relative_error(g, truth) == pytest.approx(expected, rel=0.25)
    tied = (w == w[:, None]) & ~torch.eye(64, dtype=torch.bool)
    ratio = ((V.mT @ g @ V) / (V.mT @ truth @ V))[tied]
    factor = -4e10 * w[:, None].expand(64, 64)[tied] if at_ties is None else torch.full_like(ratio, at_ties)
    assert_close(ratio, factor, rtol=1e-9, atol=1e-9)


# --- one tight cluster ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [sg.Taylor(), sg.Taylor(degree=100), sg.Clip()], ids=str)
def test_g8_in_a_tight_cluster_skew_rules_keep_the_diagonal_only(rule):
    """Eight eigenvalues within 1e-10: the rules delete all that is off the diagonal in the eigenbasis (0.89)."""
    A, G = with_spectrum(1 - 1e-10 * np.linspace(0, 1, 8)), sym(gaussian(8, 8))
    V = sg.eigh(A).eigenvectors
    T = V.mT @ G @ V
    lost = (T - torch.diag(T.diagonal())).norm() / T.norm()
    g = gradient(lambda M: sg.matrix_inv_sqrt(M, method=rule), A, G)
    assert relative_error(g, Reference(A).gradient("inv_sqrt", G)) == pytest.approx(lost.item(), abs=1e-6)


def test_g8_a_cluster_within_a_hundredth_already_costs_half_the_gradient():
    """Spread 1e-2: Taylor-9 0.85, Taylor-100 0.61, clip 0.55; plain and exact at rounding level."""
    A, G = with_spectrum(1 - 1e-2 * np.linspace(0, 1, 8)), sym(gaussian(8, 8))
    truth = Reference(A).gradient("inv_sqrt", G)
    error = {
        m: relative_error(gradient(lambda M, m=m: sg.matrix_inv_sqrt(M, method=m), A, G), truth)
        for m in (sg.Taylor(), sg.Taylor(degree=100), sg.Clip(), "svd-pade", "exact")
    }
    assert all(error[m] > 0.4 for m in (sg.Taylor(), sg.Taylor(degree=100), sg.Clip()))
    assert error["svd-pade"] < 1e-11
    assert error["exact"] < 1e-14


CLUSTERS = [(torch.float64, 1e-14), (torch.float32, 1e-6)]


def cluster(dtype, spread):
    """64 eigenvalues within ``spread`` of 1 with computed ties; A = I + E, so the true gradient is −G/2 + O(spread)."""
    A = with_spectrum(1 - spread * np.linspace(0, 1, 64), dtype=dtype)
    assert (sg.eigh(A).eigenvalues.diff() == 0).any()
    return A, sym(gaussian(64, 64, dtype=dtype))


@pytest.mark.parametrize(("dtype", "spread"), CLUSTERS, ids=str)
def test_g8_g9_tight_cluster_with_ties_is_nan_for_plain_and_exact_for_ours(dtype, spread):
    """64 eigenvalues within 1e-14 (float32: 1e-6): plain autograd NaN, divided differences at rounding level."""
    A, G = cluster(dtype, spread)
    assert not gradient(PLAIN["torch-eigh"], A, G).isfinite().all()
    assert relative_error(gradient(sg.matrix_inv_sqrt, A, G), -G / 2) < 8 * spread
    for rule in (sg.Taylor(), sg.Taylor(degree=100), sg.Clip()):
        skew = gradient(lambda M, rule=rule: sg.matrix_inv_sqrt(M, method=rule), A, G)
        assert 0.9 < relative_error(skew, -G / 2) < 1


@pytest.mark.parametrize(("dtype", "spread"), CLUSTERS, ids=str)
@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (sg.Taylor(faithful=True), 2),
        (sg.Taylor(degree=100, faithful=True), 20),
        (sg.Trunc(faithful=True), 1e8),
        (sg.Pade(faithful=True), 1e4),
    ],
    ids=str,
)
def test_g10_tight_cluster_under_the_released_rules(rule, least, dtype, spread):
    """The same with the released signs: errors 5.4 (Taylor-9), 53 (Taylor-100), 5e9 (truncation), 3e15 (Padé)."""
    A, G = cluster(dtype, spread)
    g = gradient(lambda M: sg.matrix_inv_sqrt(M, method=rule), A, G)
    assert g.isfinite().all()
    assert relative_error(g, -G / 2) > least


@pytest.mark.parametrize("iterations", [2, 19])
def test_g2_svd_pi_closed_form_equals_the_unrolled_algorithm(iterations):
    """SVD-PI in closed form is what autograd gets from Algorithm 1 run step by step, for eigh and for √A."""
    A, H = with_spectrum(SPECTRUM), gaussian(8, 8, seed=2)
    closed, unrolled = (sg.SVDPI(iterations=iterations, unrolled=u, **KEEP_ALL) for u in (False, True))
    assert relative_error(vector_gradient(A, closed, H), vector_gradient(A, unrolled, H)) < 1e-12
    roots = [gradient(lambda M, m=m: sg.matrix_sqrt(M, method=m), A, sym(H)) for m in (closed, unrolled)]
    assert relative_error(*roots) < 1e-12
