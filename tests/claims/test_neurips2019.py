"""B1–B15: Backpropagation-Friendly Eigendecomposition (NeurIPS 2019): power iteration, its series, its constants."""

import math
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import (
    KEEP_ALL,
    SPECTRUM,
    gaussian,
    gradient,
    mp,
    pair_gap,
    power_iteration_gradient,
    sym,
    tensor,
    uniform,
    vector_gradient,
)

SPREAD = (0.1, 0.3, 0.5, 0.65, 0.8, 1.0)
IDENTITY = torch.eye(6, dtype=torch.float64)


def leading_only(g):
    """A cotangent of all eigenvectors that touches the leading one only."""
    H = torch.zeros(*g.shape, g.shape[-1], dtype=torch.float64)
    H[..., -1] = g
    return H


def test_b1_iterates_and_their_gradient():
    """Eq. 2: each iterate is Mv/‖Mv‖ of the one before; Eq. 3 is the derivative of the last (difference quotient)."""
    A, g, Z, step = with_spectrum(SPREAD), gaussian(6, seed=1), sym(gaussian(6, 6, seed=2)), 1e-6

    def leading(M, steps):
        return sg.eigh(M, method=sg.PI(iterations=steps, **KEEP_ALL)).eigenvectors[:, -1]

    iterates = [leading(A, k) for k in range(5)]
    for v, after in pairwise(iterates):
        assert_close(after, A @ v / (A @ v).norm(), rtol=0, atol=1e-12)
    slope = (leading(A + step * Z, 4) - leading(A - step * Z, 4)) @ g / (2 * step)
    assert_close((power_iteration_gradient(A, iterates, g) * Z).sum(), slope, rtol=1e-6, atol=0)


@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_b2_iterations_from_the_exact_vector_give_that_many_terms(iterations):
    """Eq. 4: Σ_(k<K) M^k(I − vvᵀ)/‖Mv‖^(k+1) is the gradient of K iterations started at v."""
    A, g = with_spectrum(SPREAD), gaussian(6, seed=1)
    v = sg.eigh(A).eigenvectors[:, -1]
    size, P = (A @ v).norm(), IDENTITY - torch.outer(v, v)
    terms = sum(sg.matrix_power(A, k) @ P / size ** (k + 1) for k in range(iterations))
    unrolled = sg.SVDPI(iterations=iterations, unrolled=True, **KEEP_ALL)
    assert relative_error(vector_gradient(A, unrolled, leading_only(g)), sym(torch.outer(terms @ g, v))) < 1e-12


def test_b3_many_iterations_give_the_analytic_gradient_if_the_ratio_is_below_one():
    """The gap closes like (λ2/λ1)^K: 1e-12 at K = 100 for ratio 0.75; at ratio 1 the series grows without limit."""
    A, H = with_spectrum((0.1, 0.2, 0.4, 0.5, 0.75, 1.0)), leading_only(gaussian(6, seed=1))
    truth = vector_gradient(A, "svd", H)
    errors = [relative_error(vector_gradient(A, sg.SVDPI(iterations=k), H), truth) for k in (5, 20, 100)]
    assert 1e-2 < errors[0] < 1
    assert 1e-5 < errors[1] < 1e-2
    assert errors[2] < 1e-12
    nearly = 1 - 2.0**-50
    assert pair_gap(sg.SVDPI(iterations=10**6), nearly) == pytest.approx(1e6, rel=1e-6)


@pytest.mark.parametrize("method", ["svd", sg.SVDPI(unrolled=True, **KEEP_ALL)], ids=str)
def test_b5_rayleigh_quotient_depends_on_the_matrix_not_on_the_vector(method):
    """Its derivative in v is zero at an eigenvector and in M is vvᵀ, so the dropped term comes back through M."""
    A = with_spectrum(SPREAD)
    v = sg.eigh(A).eigenvectors[:, -1]
    assert gradient(lambda u: u @ A @ u / (u @ u), v).norm() < 1e-12
    through_m = gradient(lambda M: sg.eigh(M, method=method).eigenvalues[-1], A)
    assert relative_error(through_m, torch.outer(v, v)) < 1e-12


@pytest.mark.parametrize("iterations", [1, 9, 19])
def test_b6_bound_holds_without_the_factor_n(iterations):
    """Eq. 12–13: ‖dL/dM‖ ≤ nK/ε·‖dL/dv‖; K/λ1 already bounds it."""
    w, g = uniform(300, 6, low=0.01).sort(-1).values, gaussian(300, 6, seed=1)
    method = sg.SVDPI(iterations=iterations, **KEEP_ALL)
    size = torch.linalg.matrix_norm(vector_gradient(torch.diag_embed(w), method, leading_only(g)))
    # before symmetrisation the gradient u vᵀ, u ⟂ v, is √2 times as large
    assert (2**0.5 * size / g.norm(dim=-1) * w[:, -1] <= iterations * (1 + 1e-12)).all()
    assert (method.gaps(w).abs().amax((-2, -1)) <= method.bound(w) * (1 + 1e-12)).all()


RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99, 0.995, 0.999)
TABLE_1 = (2, 2, 3, 4, 5, 6, 9, 14, 19, 29, 59, 299, 598, 2995)
HEADER = (2, 3, 4, 6, 7, 10, 13, 21, 29, 44, 90, 459, 919, 4603)


def cut_off(terms, ratio):
    """The share of 1/(λi − λj) that this many terms leave out."""
    return float(sg.SVDPI(iterations=terms).bias(tensor(ratio, 1.0))[1, 0])


@pytest.mark.parametrize(("ratio", "terms", "header"), list(zip(RATIOS, TABLE_1, HEADER, strict=True)))
def test_b7_b8_table_1_is_for_five_per_cent_rounded_up(ratio, terms, header):
    """The printed k is the least with ratio^k ≤ 0.05: ceil, not floor; the header's ln 0.01 gives other numbers."""
    assert cut_off(terms, ratio) <= 0.05 < cut_off(terms - 1, ratio)
    assert math.ceil(math.log(0.01) / math.log(ratio) - 1e-9) == header
    assert ratio == 0.1 or header != terms


@pytest.mark.parametrize(("ratio", "good"), [(0.84, True), (0.85, True), (0.86, False)])
def test_b9_nineteen_iterations_do_not_reach_five_per_cent_at_086(ratio, good):
    """K = 19 is called good for ratios up to 0.86; 0.86^19 = 0.057."""
    assert (cut_off(19, ratio) <= 0.05) == good
    assert cut_off(20, 0.86) <= 0.05


def test_b10_default_sums_nineteen_terms():
    """The paper's K = 19 means powers 0 … 18; the released code adds one."""
    x = mp.mpf(3) / 4
    ours = pair_gap(sg.SVDPI(), 0.75)
    assert ours == pytest.approx(float(mp.fsum(x**k for k in range(19))), rel=1e-12)
    assert abs(ours - mp.fsum(x**k for k in range(20))) > 1e-3


def test_b11_projector_identities():
    """(I − vvᵀ)M(I − vvᵀ) = M(I − vvᵀ), and with two factors M likewise, for every eigenvector."""
    A = with_spectrum(SPREAD)
    for k in range(6):
        P = IDENTITY - (sg.spectral_projector(A, k + 1) - sg.spectral_projector(A, k))
        assert_close(P @ A @ P, A @ P, rtol=0, atol=1e-12)
        assert_close(P @ A @ P @ A @ P, A @ A @ P, rtol=0, atol=1e-12)


@pytest.mark.parametrize("keep", [6, 5])
def test_b15_pca_with_all_vectors_is_standardisation(keep):
    """Projecting on all eigenvectors of the covariance returns the standardised input; on fewer it does not."""
    X = with_spectrum(SPREAD) @ gaussian(6, 50)
    standard = (X - X.mean(-1, keepdim=True)) / X.std(-1, correction=0, keepdim=True)
    denoised = sg.spectral_projector(sg.covariance(standard), keep) @ standard
    assert (relative_error(denoised, standard) < 1e-12) == (keep == 6)


# --- Algorithm 1's stopping rules, which SVD-PI and PI share ----------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "discarded"),
    [
        (KEEP_ALL, 0),
        ({**KEEP_ALL, "eps": 0.195}, 2),
        ({**KEEP_ALL, "energy": 0.9}, 3),  # shares 0.239, 0.467, 0.634, 0.799, 0.895, 0.943, …
        ({**KEEP_ALL, "energy": 1.0}, 0),
    ],
    ids=["none", "eps", "energy", "energy-disabled"],
)
def test_b_algorithm_1_stopping_rules(options, discarded):
    """Pairs are kept, largest first, until λ ≤ ε or their energy reaches the share; a share of 1 disables that rule."""
    A = with_spectrum(SPECTRUM)
    w, V = sg.eigh(A)
    assert (~sg.SVDPI(**options).kept(A, w, V)).sum() == discarded
