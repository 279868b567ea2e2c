"""Every rule of the library against the formula of its paper, term by term at 50 digits."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.rules import METHODS
from spectralgrad.testing import paired_spectrum, relative_error, with_spectrum
from spectralgrad_lab.papers.fifty_digits import from_mp, mp, mp_eigensystem, mp_gaps, mp_matrix, mp_rule_gradient
from spectralgrad_lab.papers.gradients.compared import EXPONENT, ROOTS
from spectralgrad_lab.papers.gradients.refined import true_gradient
from spectralgrad_lab.papers.inputs import SPECTRUM, gaussian, gradient, paired, sym, tensor, vector_gradient

RULES = [
    *(kind() for kind in METHODS.values() if issubclass(kind, sg.GapMethod)),
    sg.TopN(keep=5),
    sg.Taylor(degree=100),
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
def test_rule_equals_its_formula_at_50_digits(rule, spectrum):
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
def test_eigh_gradient_equals_its_formula_at_50_digits(rule):
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
def test_root_gradient_equals_its_formula_at_50_digits(rule, root):
    """The gradient of a root by a rule is ICCV Eq. 4–5 (dL/dV = 2GVF) with the rule's K̂, to 1e-12."""
    A, G, p = with_spectrum(SPECTRUM), sym(gaussian(8, 8, seed=2)), mp.mpf(EXPONENT[root])
    w, V = mp_eigensystem(A)
    keep = kept(rule, w)
    T = V.T * mp_matrix(G) * V
    coupling = 2 * T * mp.diag([x**p * k for x, k in zip(w, keep, strict=True)])
    diagonal = [p * x ** (p - 1) * T[i, i] * k for i, (x, k) in enumerate(zip(w, keep, strict=True))]
    g = gradient(lambda M: ROOTS[root](M, method=rule), A, G)
    assert relative_error(g, mp_rule_gradient(V, mp_gaps(rule, w), coupling, diagonal)) < 1e-12


def mp_approximant(method, root):
    """The scalar function of y = λ/‖A‖ that a method evaluates, by the general routines of mpmath."""
    exponent = mp.mpf(EXPONENT[root])
    if isinstance(method, sg.MTP):
        series = mp.taylor(lambda z: (1 - z) ** exponent, 0, method.degree)
        return lambda y: mp.polyval(series[::-1], 1 - y)
    series = mp.taylor(lambda z: mp.sqrt(1 - z), 0, 2 * method.degree)
    p, q = (c[::-1] for c in mp.pade(series, method.degree, method.degree))
    return lambda y: (mp.polyval(p, 1 - y) / mp.polyval(q, 1 - y)) ** mp.sign(exponent)


def mp_lyapunov(method, b, scale):
    """What the sign iteration multiplies each entry of the right-hand side by, in the eigenbasis."""
    c = mp.matrix(len(b), len(b))
    for i, first in enumerate(b):
        for j, second in enumerate(b):
            x, y, entry = first / scale, second / scale, 1 / scale
            for _ in range(method.lyapunov_steps):
                entry *= (x * y - x * x - y * y + 3) / 2
                x, y = x * (3 - x * x) / 2, y * (3 - y * y) / 2
            c[i, j] = entry / 2
    return c


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize(
    "method", [sg.MTP(), sg.MPA(), sg.MTP(degree=10), sg.MPA(degree=2), sg.MTP(degree=1, lyapunov_steps=3)], ids=str
)
def test_approximate_roots_equal_their_formulas_at_50_digits(method, root):
    """Value and gradient of ICLR 2022 and TPAMI 2023, in the eigenbasis of the matrix, to 1e-12."""
    A, G = with_spectrum(SPECTRUM), sym(gaussian(8, 8, seed=2))
    w, V = mp_eigensystem(A)
    norm = mp.sqrt(mp.fsum(x * x for x in w))
    inverse = EXPONENT[root] < 0
    values = [mp_approximant(method, root)(x / norm) * norm ** mp.mpf(EXPONENT[root]) for x in w]
    assert relative_error(ROOTS[root](A, method=method), from_mp(V * mp.diag(values) * V.T)) < 1e-12
    scale = mp.sqrt(mp.fsum(x * x for x in values)) if inverse else mp.sqrt(norm)
    weights, inner = mp_lyapunov(method, values, scale), V.T * mp_matrix(G) * V
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            inner[i, j] *= -weights[i, j] * (a * b) ** 2 if inverse else weights[i, j]
    g = gradient(lambda M: ROOTS[root](M, method=method), A, G)
    assert relative_error(g, from_mp(V * inner * V.T)) < 1e-12


@pytest.mark.parametrize("rule", [r for r in RULES if "svd" in r.operations], ids=str)
def test_svd_of_a_positive_matrix_has_the_gradient_of_eigh(rule):
    """For a positive definite matrix the rule gives the same gradient through svd as through eigh."""
    A, H = with_spectrum(SPECTRUM), gaussian(8, 8, seed=2)
    signs = torch.sign((sg.svd(A).Vh.mT.flip(-1) * sg.eigh(A).eigenvectors).sum(0))
    through_svd = gradient(lambda M: sg.svd(M, method=rule).Vh.mT.flip(-1) * signs, A, H)
    assert relative_error(sym(through_svd), vector_gradient(A, rule, H)) < 1e-12


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("condition", [1e2, 1e12])
@pytest.mark.parametrize("gap", [1e-2, 1e-10, 0.0])
def test_the_reference_refined_in_integers_has_the_digits_of_the_50_digit_one(gap, condition, root):
    A, reference, G = paired(condition, gap)
    assert_close(true_gradient(A, root, G), reference.gradient(root, G), rtol=1e-15, atol=0)
