"""Hessians of losses of eigenvalues and singular values: exact at ties and at zero, in every mode."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import grad, jacfwd, jacrev, jvp

import spectralgrad as sg
from spectralgrad import precision, solvers
from spectralgrad.autograd.eigen.second_derivatives import Curvature
from spectralgrad.testing import random_orthogonal, relative_error, with_spectrum

from .helpers import DOUBLES, REAL, symmetric_noise, unit
from .hessians import PRODUCTS, eager, exact_product, forward_over_reverse, mp

pytestmark = pytest.mark.usefixtures("both_ways")


def _sum(f, slope, second):
    return f, lambda w: list(map(slope, w)), lambda w: lambda i, j: second(w[i]) if i == j else mp.mpf(0)


def _softmax(w):
    parts = [mp.exp(x) for x in w]
    return [x / sum(parts) for x in parts]


def _soft_second(w):
    p = _softmax(w)
    return lambda i, j: (p[i] if i == j else 0) - p[i] * p[j]


# The loss, its gradient and its Hessian as a function of the eigenvalues.
LOSSES = {
    "exp": _sum(lambda w: w.exp().sum(-1), mp.exp, mp.exp),
    "log det": _sum(lambda w: w.prod(-1).log(), lambda x: 1 / x, lambda x: -1 / x**2),
    "log": _sum(lambda w: w.log().sum(-1), lambda x: 1 / x, lambda x: -1 / x**2),
    "cubes": _sum(lambda w: (w**3).sum(-1), lambda x: 3 * x**2, lambda x: 6 * x),
    "squares": _sum(lambda w: w.square().sum(-1), lambda x: 2 * x, lambda x: mp.mpf(2)),
    "entropy": _sum(lambda w: -(w * w.log()).sum(-1), lambda x: -mp.log(x) - 1, lambda x: -1 / x),
    "log1p": _sum(lambda w: w.log1p().sum(-1), lambda x: 1 / (1 + x), lambda x: -1 / (1 + x) ** 2),
    "logsumexp": (lambda w: w.logsumexp(-1), _softmax, _soft_second),
}
SPECTRA = {
    "spread": [0.3, 0.8, 1.5, 2.0],
    "identity": [1.0] * 4,
    "multiple": [2.5] * 4,
    "pairs": [0.5, 0.5, 2.0, 2.0],
    "triple": [0.3, 1.0, 1.0, 1.0],
    "rank one and identity": [1.0, 1.0, 1.0, 4.0],
    "graded": [1e-6, 1e-3, 1e-3, 1.0],
}


def _of(values, loss):
    return lambda X: LOSSES[loss][0](values(X))


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_second_derivatives_have_the_accuracy_of_the_eigenvalues(loss, dtype):
    """Against 50 digits; the stored matrix is in a random basis, so rounding separates its ties a little."""
    for seed, (name, spectrum) in enumerate(SPECTRA.items()):
        A, Z = with_spectrum(spectrum, dtype=dtype, seed=seed), symmetric_noise(4, dtype, seed=seed)
        expected = exact_product(*LOSSES[loss][1:], A, Z)
        bound = 100 * unit(dtype) * max(spectrum) / min(spectrum)
        for product in (eager, forward_over_reverse):
            assert relative_error(product(_of(sg.eigvalsh, loss), A, Z), expected) < bound, name


def _of_pencil(X):
    return sg.eigvalsh(X[..., :3, :], X[..., 3:, :])


def _squared(M):
    return sg.svdvals(M).square()


def _of_pairs(A):
    return sg.eigh(A).eigenvalues


def _of_all_pairs(A):
    return sg.eigh(A, k=3).eigenvalues


def _of_pencil_pairs(X):
    return sg.eigh(X[..., :3, :], X[..., 3:, :]).eigenvalues


def _squared_of_triplets(M):
    return sg.svd(M).S.square()


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_hessian_of_the_kept_eigenvalues_at_a_tie(product):
    """The largest two are equal, and their sum of exponentials is smooth: the third is far away."""
    A, Z = with_spectrum([0.3, 1.5, 1.5]), symmetric_noise(3, seed=7)
    expected = exact_product(
        lambda w: [0, mp.exp(w[1]), mp.exp(w[2])],
        lambda w: lambda i, j: mp.exp(w[i]) if i == j and i else mp.mpf(0),
        A,
        Z,
    )
    found = PRODUCTS[product](lambda X: sg.eigh(X, k=2).eigenvalues.exp().sum(-1), A, Z)
    assert relative_error(found, expected) < 1e-13


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_loss_of_vectors_keeps_its_hessian(product):
    """Distinct eigenvalues; the square root composed of pairs, against the one that has its own derivatives."""
    A, Z, G = with_spectrum([0.3, 1.0, 2.5], seed=1), symmetric_noise(3, seed=2), symmetric_noise(3, seed=3)

    def composed(X):
        w, V = sg.eigh(X)
        return ((V * w.sqrt().unsqueeze(-2)) @ V.mT * G).sum((-2, -1)) + w.log().sum(-1)

    def direct(X):
        return (sg.matrix_sqrt(X) * G).sum((-2, -1)) + sg.eigvalsh(X).log().sum(-1)

    assert relative_error(PRODUCTS[product](composed, A, Z), eager(direct, A, Z)) < 1e-12


@pytest.mark.parametrize("product", PRODUCTS)
def test_all_ways_to_a_hessian_agree_at_ties(product):
    """The logarithm of the trace of an exponential, once from the values and once without a decomposition."""
    tie, W = with_spectrum([0.7, 0.7, 2.0]), with_spectrum([1.0, 2.0, 3.0], seed=1)
    root = torch.linalg.cholesky(W)
    pencil = torch.cat([root @ tie @ root.T, W])
    turned = random_orthogonal(5, seed=2)[:, :3] * torch.tensor([1.0, 1.0, 0.0]) @ random_orthogonal(3, seed=3)
    cases = (
        ((sg.eigvalsh, _of_pairs, _of_all_pairs), lambda A: A, tie),
        ((_of_pencil, _of_pencil_pairs), lambda X: torch.linalg.solve(X[3:], X[:3]), pencil),
        ((_squared, _squared_of_triplets), lambda M: M.mT @ M, turned),
    )
    for values, square, X in [(f, square, X) for functions, square, X in cases for f in functions]:
        direction = symmetric_noise(3, seed=4) if X is tie else torch.randn_like(X)
        if X is pencil:
            direction = torch.cat([symmetric_noise(3, seed=5), symmetric_noise(3, seed=6)])
        expected = eager(lambda X, f=square: torch.linalg.matrix_exp(f(X)).diagonal().sum().log(), X, direction)
        found = PRODUCTS[product](lambda X, f=values: f(X).logsumexp(-1), X, direction)
        if X is pencil:  # only the symmetric part counts
            found, expected = (torch.cat([Y[:3] + Y[:3].T, Y[3:] + Y[3:].T]) for Y in (found, expected))
        assert relative_error(found, expected) < 1e-12, values


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("singular", [[2.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0] * 3], ids=str)
def test_even_losses_have_their_hessian_where_singular_values_vanish(singular, dtype):
    """‖M‖², whose Hessian is twice the identity, and the logarithm of the determinant of I + MᴴM."""
    S = torch.tensor(singular, dtype=torch.float64).to(dtype)
    for m, n in ((3, 3), (5, 3), (3, 4)):
        U, Vh = random_orthogonal(m, dtype=dtype)[:, :3], random_orthogonal(n, dtype=dtype, seed=1)[:3]
        M, Z = (U * S) @ Vh, random_orthogonal(5, dtype=dtype, seed=2)[:m, :n]
        identity = torch.eye(n, dtype=dtype)
        expected = eager(lambda X, one=identity: torch.linalg.slogdet(one + X.mH @ X)[1], M, Z)
        for product in (eager, forward_over_reverse):
            assert relative_error(product(lambda X: sg.svdvals(X).square().sum(), M, Z), 2 * Z) < 1e-13
            assert relative_error(product(lambda X: sg.svdvals(X).square().log1p().sum(), M, Z), expected) < 1e-13
    for product in (eager, forward_over_reverse):  # the nuclear norm has none there
        assert bool(product(lambda X: sg.svdvals(X).sum(), M, Z).isfinite().all())


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("loss", ["log", "logsumexp"])
def test_the_error_near_a_tie_is_bounded(loss, dtype):
    """The documented bounds: 2 √ε for torch.func; twice in reverse mode ε^(2/3) for a sum, with a factor of ten."""
    eps = torch.finfo(dtype).eps
    for exponent in range(1, 18):
        gap = 10.0 ** (-exponent * 16 / 17 if dtype == torch.float64 else -exponent / 2)
        A = with_spectrum([0.5, 0.5 + gap, 0.5 + 3 * gap, 2.0], dtype=dtype, seed=exponent)
        Z = symmetric_noise(4, dtype, seed=exponent)
        expected = exact_product(*LOSSES[loss][1:], A, Z)
        f = _of(sg.eigvalsh, loss)
        assert relative_error(forward_over_reverse(f, A, Z), expected) < 4 * eps**0.5
        assert relative_error(eager(f, A, Z), expected) < (10 * eps ** (2 / 3) if loss == "log" else 2 * eps**0.5)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_which_values_are_tied(dtype):
    """Chains of neighbours within a tolerance; a chain of near ties that is longer than four steps is no group."""
    step = torch.finfo(dtype).eps ** 0.5 / 4
    fine = 8 * precision.rank_tolerance(8, dtype)

    def count(ties, *steps):
        w = torch.tensor([0.5, 1.0], dtype=torch.float64)
        near = 0.75 + torch.tensor([0.0, *steps], dtype=torch.float64).cumsum(0)
        return len(set(solvers.groups(torch.cat([w[:1], near, w[1:]]).to(dtype), ties, 8).tolist())) - 2

    assert count(solvers.Ties.ROUNDING, 0.8 * fine) == 1
    assert count(solvers.Ties.ROUNDING, 1.3 * fine) == 2
    assert count(solvers.Ties.NEAR, 0.9 * step, 0.9 * step) == 1
    assert count(solvers.Ties.NEAR, 0.9 * step, 1.1 * step) == 2
    assert count(solvers.Ties.NEAR, *[0.75 * step] * 5) == 1
    assert count(solvers.Ties.NEAR, *[0.75 * step] * 6) == 7
    assert count(solvers.Ties.NONE, 0.0) == 2


@pytest.mark.parametrize("gap", [1e-3, 1e-7, 1e-9, 1e-11])
def test_a_single_eigenvalue_keeps_its_large_second_derivative_near_a_tie(gap):
    A, Z = torch.diag(torch.tensor([1.0, 1.0 + gap, 2.0], dtype=torch.float64)), symmetric_noise(3)
    inverse = torch.tensor([0.0, float(1 / (A[0, 0] - A[1, 1])), -1.0], dtype=torch.float64)
    expected = torch.zeros_like(A)
    expected[0], expected[:, 0] = Z[0] * inverse, Z[0] * inverse
    for product in (eager, forward_over_reverse):
        assert relative_error(product(lambda X: sg.eigvalsh(X)[0], A, Z), expected) < 1e-12


@pytest.mark.parametrize("values", [sg.eigvalsh, sg.svdvals, lambda A: sg.eigvalsh(A, 2 * torch.eye(4).double())])
def test_losses_that_single_out_tied_values_stay_finite(values):
    """First derivatives stay linear in the direction there; a direction that is not finite raises no error."""
    for spectrum in (SPECTRA["identity"], SPECTRA["graded"]):
        A, Z = with_spectrum(spectrum), symmetric_noise(4)
        for product in PRODUCTS.values():
            assert bool(product(lambda X: values(X)[0], A, Z).isfinite().all())
    A = torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(jacfwd(values)(A), jacrev(values)(A))
    assert bool(forward_over_reverse(lambda X: values(X).square().sum(), A, A * torch.nan).isnan().any())


@pytest.mark.parametrize("values", [sg.eigvalsh, sg.svdvals, lambda A: sg.eigvalsh(A, 2 * torch.eye(4).double())])
def test_third_derivatives_are_exact_where_the_values_are_distinct(values):
    A, Z = with_spectrum(SPECTRA["spread"]).requires_grad_(), symmetric_noise(4)
    loss = lambda X: values((X + X.mT) / 2).exp().sum()  # noqa: E731

    def twice(X):
        (g,) = torch.autograd.grad(loss(X), X, create_graph=True)
        return torch.autograd.grad((g * Z).sum(), X, create_graph=True)[0]

    assert gradcheck(twice, (A,))
    assert gradcheck(lambda X: jvp(grad(loss), (X,), (Z,))[1], (A,))


@pytest.mark.parametrize("product", [eager, forward_over_reverse])
@pytest.mark.parametrize("values", [sg.eigvalsh, sg.svdvals])
def test_scale_and_neighbours_have_no_influence(values, product):
    f, tie, Z = (lambda X: values(X).log().sum()), with_spectrum(SPECTRA["pairs"]), symmetric_noise(4)
    for c in (2.0**400, 2.0**-400):
        assert torch.equal(product(f, tie * c, Z) * c * c, product(f, tie, Z))
    spread = with_spectrum(SPECTRA["spread"])
    for first, other in ((tie, spread), (spread, tie)):
        assert torch.equal(*(product(f, torch.stack([first, x]), torch.stack([Z, Z]))[0] for x in (first, other)))


def test_parameters_of_the_loss_and_half_types():
    A, Z = torch.eye(3, dtype=torch.float64).requires_grad_(), symmetric_noise(3)
    a = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad((a * sg.eigvalsh(A)).exp().sum(), A, create_graph=True)
    of_a, of_A = torch.autograd.grad((g * Z).sum(), (a, A))
    assert relative_error(of_A, a * a * a.exp() * Z) < 1e-14
    assert relative_error(of_a, (1 + a) * a.exp() * Z.trace()) < 1e-14
    for dtype in (torch.float16, torch.bfloat16):
        H = forward_over_reverse(lambda X: sg.eigvalsh(X).square().sum(), torch.eye(3, dtype=dtype), Z.to(dtype))
        assert relative_error(H, 2 * Z.to(dtype)) < torch.finfo(dtype).eps


def test_slopes_are_differentiated_again_only_where_it_is_needed(monkeypatch):
    """Not for a gradient, and not for the Hessian in eager mode if the eigenvalues are well separated."""
    monkeypatch.setattr(Curvature, "_product", None)  # calling it would raise a TypeError
    A, Z = with_spectrum(SPECTRA["spread"]), symmetric_noise(4)
    for values in (sg.eigvalsh, sg.svdvals):
        eager(lambda X, f=values: f(X).exp().sum(), A, Z)
        X = torch.eye(4).requires_grad_()
        values(X).exp().sum().backward()
        with pytest.raises(TypeError):
            eager(lambda X, f=values: f(X).exp().sum(), torch.eye(4), torch.eye(4))
