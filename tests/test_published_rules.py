"""The papers' rules as published: raised eigenvalues, repaired infinities."""

import math
import re

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.rules import spelling
from spectralgrad.rules.released_form import repaired
from spectralgrad.testing import with_spectrum

RULES = ["svd", "svd-clip", "svd-trunc", "svd-topn", "svd-taylor", "svd-pade"]
CLAMP = 2.220446049250313e-16


def wide_features(n=2, channels=24, positions=13):
    """Features with fewer positions than channels: a singular covariance."""
    draw = torch.randn(n, channels, positions, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return draw.relu()


@pytest.mark.parametrize("rule", RULES)
def test_raised_eigenvalues_count_in_the_function_and_are_tied_in_the_gaps(rule):
    A = torch.diag(torch.tensor([4.0, 1.0, 1e-3, 0.0], dtype=torch.float64))
    method = f"{rule}:clamp=0.01"
    assert_close(sg.matrix_inv_sqrt(A, method=method).diagonal(), torch.tensor([0.5, 1, 10, 10], dtype=torch.float64))
    w, _ = sg.eigh(A, method=method)
    assert_close(w, torch.tensor([0.01, 0.01, 1, 4], dtype=torch.float64))


@pytest.mark.parametrize("rule", RULES)
def test_clamp_below_the_spectrum_changes_nothing(rule):
    A = with_spectrum((0.1, 0.3, 0.7, 1.0)).requires_grad_()
    G = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    plain, raised = (sg.matrix_inv_sqrt(A, method=m) for m in (rule, f"{rule}:clamp=1e-6"))
    assert_close(plain, raised)
    assert_close(torch.autograd.grad(plain, A, G), torch.autograd.grad(raised, A, G))


def test_clamp_of_svd_makes_ties_and_ties_make_nan():
    """TPAMI Algorithm 2, line 5: eigenvalues that rounding put below ε are raised to it, and plain SVD fails."""
    A = torch.diag(torch.tensor([1.0, 0.0099, 0.0098])).requires_grad_()
    (sg.matrix_inv_sqrt(A, method="svd:clamp=0.01") * torch.ones(3, 3)).sum().backward()
    assert not A.grad.isfinite().all()
    faithful = torch.autograd.grad(sg.matrix_inv_sqrt(A, method="svd:clamp=0.01:faithful=True").sum(), A)[0]
    assert faithful.isfinite().all()


@pytest.mark.parametrize(
    ("spectrum", "count"),
    [
        ((0.02, 0.3, 1.0), 1),
        ((0.001, 0.3, 1.0), 3),
        ((0.001, 0.002, 1.0), 2),
        ((0.001, 0.002, 0.003), 1),
    ],
)
def test_the_baseline_keeps_eigenvectors_up_to_the_first_small_one_or_a_single_one(spectrum, count):
    """The counter of the released layers starts at one and is raised only by an eigenvalue up to ε."""
    A = with_spectrum(spectrum)
    w, V = sg.eigh(A)
    expected = V[:, -count:] @ torch.diag(w[-count:].rsqrt()) @ V[:, -count:].mT
    assert_close(sg.matrix_inv_sqrt(A, method="svd:stop=0.01"), expected)
    G = torch.randn(A.shape, dtype=A.dtype, generator=torch.Generator().manual_seed(1))

    def released(A):
        w, V = torch.linalg.eigh(A)
        return V[:, -count:] @ torch.diag(w[-count:].rsqrt()) @ V[:, -count:].mT

    A = A.requires_grad_()
    ours, theirs = (
        torch.autograd.grad(f(A), A, G)[0] for f in (lambda A: sg.matrix_inv_sqrt(A, method="svd:stop=0.01"), released)
    )
    assert_close(ours, (theirs + theirs.mT) / 2)


@pytest.mark.parametrize(("smallest", "kept"), [(0.01, [True, True]), (math.nextafter(0.01, 1), [False, True])])
def test_an_eigenvalue_at_the_limit_raises_the_counter(smallest, kept):
    w = torch.tensor([smallest, 0.3], dtype=torch.float64)
    assert sg.Analytic(stop=0.01).kept(torch.diag(w), w, torch.eye(2, dtype=torch.float64)).tolist() == kept


def test_an_eigenvalue_equal_to_the_limit_is_small():
    kept = sg.Analytic(stop=0.5).kept(torch.eye(3), torch.tensor([0.25, 0.5, 1.0]), torch.eye(3))
    assert kept.tolist() == [False, True, True]


def test_a_single_eigenvector_has_an_unbounded_gradient_and_the_full_root_does_not():
    sizes = {}
    for method in ("svd:stop=1e-4", "svd"):
        for gap in (1e-2, 1e-4, 1e-6):
            A = with_spectrum((0.2, 0.5, 1 - gap, 1.0)).requires_grad_()
            S = sg.matrix_inv_sqrt(A, method=method)
            G = torch.randn(S.shape, dtype=S.dtype, generator=torch.Generator().manual_seed(1))
            sizes[method, gap] = float(torch.autograd.grad(S, A, G)[0].norm())
    assert sizes["svd:stop=1e-4", 1e-6] > 50 * sizes["svd:stop=1e-4", 1e-4] > 2500 * sizes["svd:stop=1e-4", 1e-2]
    assert sizes["svd", 1e-6] == pytest.approx(sizes["svd", 1e-2], rel=0.05)


def test_the_baseline_is_lost_where_two_dropped_eigenvalues_are_equal():
    """As torch.svd is in the released layer; the function itself is smooth there."""
    spectrum = torch.tensor([0.02, 0.02, 0.3, 1.0])
    A = torch.diag(spectrum).requires_grad_()
    sg.matrix_inv_sqrt(A, method="svd:stop=0.01").sum().backward()
    B = torch.diag(spectrum).requires_grad_()
    U, S, _ = torch.linalg.svd(B)
    (U[:, :1] @ U[:, :1].mT * S[0].rsqrt()).sum().backward()
    assert not A.grad.isfinite().all()
    assert not B.grad.isfinite().all()


def test_stop_is_refused_where_it_means_nothing():
    with pytest.raises(sg.MethodError, match="expected stop without clamp"):
        sg.Analytic(stop=0.1, clamp=0.1)
    with pytest.raises(sg.MethodError, match="expected stop ≥ 0"):
        sg.Analytic(stop=-1.0)
    with pytest.raises(sg.MethodError, match="stop is for eigenvalues"):
        sg.svd(torch.eye(2), method="svd:stop=0.5")


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("svd:faithful=True:clamp=2.2e-16", 1e-3),
        ("svd-pade:faithful=True:clamp=2.2e-16", 1e-3),
        ("svd-trunc:faithful=True:clamp=2.2e-16", 1e-5),
        ("svd-topn:keep=20:clamp=2.2e-16", 1e-5),
    ],
)
def test_covariance_pooling_as_published_is_close_to_exact_for_singular_covariances(method, error):
    """The huge entries of K̂ belong to the null space, which the features do not have (claim P40)."""
    X = wide_features().requires_grad_()
    Y, exact = (sg.nn.functional.covariance_pooling(X, method=m) for m in (method, "exact"))
    assert_close(Y, exact, atol=1e-6, rtol=0)
    G = torch.randn(Y.shape, dtype=Y.dtype, generator=torch.Generator().manual_seed(1))
    found, truth = (torch.autograd.grad(y, X, G)[0] for y in (Y, exact))
    assert (found - truth).norm() < error * truth.norm()


def test_infinities_become_the_ends_of_what_is_finite():
    K = torch.tensor([[0.0, torch.inf, torch.nan], [-torch.inf, 0.0, 5.0], [2.0, -3.0, 0.0]])
    assert_close(repaired(K), torch.tensor([[0.0, 5.0, 5.0], [-3.0, 0.0, 5.0], [2.0, -3.0, 0.0]]))
    assert repaired(torch.zeros(0, 0)).shape == (0, 0)


def test_topn_sets_the_rest_to_the_clamp():
    A = torch.diag(torch.tensor([4.0, 3.0, 2.0], dtype=torch.float64))
    assert_close(
        sg.matrix_sqrt(A, method=f"svd-topn:keep=2:clamp={CLAMP}").diagonal(),
        torch.tensor([4.0, 3.0, CLAMP], dtype=torch.float64).sqrt(),
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_clamp_must_be_positive(rule):
    with pytest.raises(sg.MethodError, match="expected clamp > 0"):
        sg.eigh(torch.eye(2), method=f"{rule}:clamp=0.0")


def test_discarded_eigenvalues_have_the_gap_of_the_clamp():
    rule = sg.TopN(keep=2, clamp=0.5)
    w = rule.replaced(torch.tensor([0.1, 0.2, 1.0, 2.0], dtype=torch.float64))
    assert_close(rule.gaps(w)[3], torch.tensor([1 / 1.5, 1 / 1.5, 1.0, 0.0], dtype=torch.float64))


def test_clamp_is_refused_by_svd():
    with pytest.raises(sg.MethodError, match="clamp is for eigenvalues"):
        sg.svd(torch.eye(2), method="svd-taylor:clamp=0.5")


def test_what_is_reported_of_a_clamped_rule_is_about_the_raised_eigenvalues():
    A = torch.diag(torch.tensor([1e-8, 1e-7, 1.0], dtype=torch.float64))
    report = sg.diagnostics.inspect(A, method="svd-taylor:clamp=0.01")
    assert float(report.bound) == pytest.approx(1000)
    assert float(sg.Taylor(clamp=0.01).bias(A.diagonal()).max()) == 1


@pytest.mark.parametrize("method", [sg.Taylor(degree=9), sg.SVDPI(), sg.PI(), sg.Taylor(degree=100)])
def test_a_layer_made_from_the_text_of_another_has_the_same_method(method):
    makers = [lambda m: sg.nn.DecorrelatedBatchNorm2d(4, eps=0.05, method=m)]
    makers += [lambda m: sg.nn.CovariancePooling(4, method=m)]
    for make in makers:
        layer = make(method)
        text = re.search(r"method='([^']*)'", repr(layer))[1]
        assert make(text).method == layer.method == method
        assert make(spelling(method)).method == method
