"""Canonical correlations and the loss of deep CCA: references, ties, few samples, dependent features, training."""

import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn import CCALoss
from spectralgrad.nn.functional import cca_loss
from spectralgrad.testing import random_orthogonal, relative_error

from .helpers import DOUBLES, in_turn, noise, unit

DOUBLE = torch.float64
SIZES = {"tall": (8, 2, 3), "wide": (4, 5, 6), "mixed": (5, 2, 7), "square": (4, 4, 3), "two": (2, 3, 3)}


def views(n, p, q, dtype=DOUBLE, seed=0):
    """Two views that share some directions."""
    X, Y = noise(n, p, dtype=dtype, seed=seed), noise(n, q, dtype=dtype, seed=seed + 1)
    return X, Y + X[:, :1]


def usual(X, Y, eps):
    """The correlations as in public code: torch's decompositions of both covariances."""

    def inverse_root(A):
        w, V = torch.linalg.eigh(A)
        return (V * w.rsqrt()) @ V.mH

    x, y, n = X - X.mean(0), Y - Y.mean(0), len(X)
    Cx, Cy = (P.mH @ P / (n - 1) + eps * torch.eye(P.shape[1], dtype=P.dtype) for P in (x, y))
    return torch.linalg.svdvals(inverse_root(Cx) @ (x.mH @ y / (n - 1)) @ inverse_root(Cy))


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("eps", [1e-3, 0.5])
@pytest.mark.parametrize("size", SIZES)
def test_formula(size, eps, dtype):
    X, Y = views(*SIZES[size], dtype)
    found, expected = sg.canonical_correlations(X, Y, eps=eps), usual(X, Y, eps)
    n, p, q = SIZES[size]
    assert found.shape == (min(n - 1, p, q),)
    assert_close(found, expected[: len(found)], rtol=1e-12, atol=1e-12)
    assert_close(sg.canonical_correlations(X, Y, 1, eps=eps), found[:1])


def test_cosines_of_the_angles_between_subspaces():
    """Without ε, the correlations are the cosines of the principal angles of the centred samples, as scipy has them."""
    X, Y = views(20, 4, 5)
    angles = scipy.linalg.subspace_angles((X - X.mean(0)).numpy(), (Y - Y.mean(0)).numpy())
    assert_close(sg.canonical_correlations(X, Y), torch.from_numpy(angles).cos().sort(descending=True).values)


@in_turn("size", SIZES, eps=[0.0, 0.1], dtype=DOUBLES)
def test_derivatives(size, eps, dtype):
    X, Y = (P.requires_grad_() for P in views(*SIZES[size], dtype))
    f = lambda X, Y: (sg.canonical_correlations(X, Y, eps=eps) ** 3).sum()  # noqa: E731
    assert gradcheck(f, (X, Y), check_forward_ad=dtype == DOUBLE, atol=1e-6)
    assert gradgradcheck(f, (X, Y), atol=1e-5, fast_mode=True)


def test_equal_correlations_and_whitened_features():
    """All eigenvalues of both covariances are equal, and all correlations: torch's gradient is NaN there or wrong."""
    Q = torch.linalg.qr(torch.cat([torch.ones(6, 1).double(), noise(6, 4)], -1))[0][:, 1:]
    X, Y = Q[:, :2], (0.6 * Q[:, :2] + 0.8 * Q[:, 2:]) @ random_orthogonal(2)
    assert_close(sg.canonical_correlations(X, Y), torch.full((2,), 0.6, dtype=DOUBLE))
    for eps in (0.0, 0.3):
        leaves = X.clone().requires_grad_(), Y.clone().requires_grad_()
        assert gradcheck(lambda X, Y, e=eps: cca_loss(X, Y, eps=e), leaves)
        assert gradgradcheck(lambda X, Y, e=eps: cca_loss(X, Y, eps=e), leaves)


def test_dependent_constant_and_vanishing_features():
    X, Y = views(16, 4, 3)
    dependent = torch.cat([X, X @ noise(4, 2), torch.ones(16, 1).double()], -1)
    assert_close(sg.canonical_correlations(dependent, Y), sg.canonical_correlations(X, Y))
    for bad in (dependent, torch.zeros_like(X), torch.ones_like(X), X[:1].expand(16, 4)):
        for eps in (0.0, 1e-3):
            leaf = bad.clone().requires_grad_()
            loss = cca_loss(leaf, Y, eps=eps)
            assert loss.isfinite()
            assert torch.autograd.grad(loss, leaf)[0].isfinite().all()
    assert sg.canonical_correlations(torch.zeros_like(X), Y).abs().max() == 0


def test_invariance_to_linear_maps_and_scales():
    X, Y = views(20, 4, 5)
    expected = sg.canonical_correlations(X, Y)
    assert_close(sg.canonical_correlations(X @ noise(4, 4, seed=8) + 3, Y @ noise(5, 5, seed=9) - 7), expected)
    for factor in (1e-200, 1e200):
        assert_close(sg.canonical_correlations(X * factor, Y), expected)
        leaf = (X * factor).requires_grad_()
        (g,) = torch.autograd.grad(cca_loss(leaf, Y, eps=0.0), leaf)
        assert relative_error(g * factor, grad(lambda X: cca_loss(X, Y, eps=0.0))(X)) < 1e-10
    single = sg.canonical_correlations(X.float() * 1e30, Y.float() * 1e-30)
    assert_close(single, expected.float(), rtol=0, atol=8 * unit(torch.float32))


def test_no_more_samples_than_features():
    """Without ε all correlations are 1 and have no gradient; with ε they follow the formula."""
    X, Y = (P.requires_grad_() for P in views(6, 8, 9))
    found = sg.canonical_correlations(X, Y)
    assert_close(found, torch.ones(5, dtype=DOUBLE))
    assert torch.autograd.grad(found.sum(), X)[0].abs().max() < 1e-12
    assert torch.autograd.grad(cca_loss(X, Y), X)[0].abs().max() > 1e-6


def test_batches_transforms_types_and_compilation():
    X, Y = noise(2, 3, 7, 3), noise(3, 7, 4, seed=1)
    found = sg.canonical_correlations(X, Y, eps=0.1)
    assert_close(found[1, 2], sg.canonical_correlations(X[1, 2], Y[2], eps=0.1))
    f = lambda x, y: sg.canonical_correlations(x, y, eps=0.1)  # noqa: E731
    assert_close(vmap(f)(X[0], Y), found[0])
    loss = lambda x: cca_loss(x, Y[0])  # noqa: E731
    expected = torch.stack([grad(loss)(x) for x in X[0]])
    assert_close(vmap(grad(loss))(X[0]), expected)
    assert_close(jacfwd(loss)(X[0, 0]), expected[0])
    assert_close(jacfwd(jacrev(loss))(X[0, 0]), jacrev(jacrev(loss))(X[0, 0]), rtol=1e-6, atol=1e-9)
    leaf = X[0, 0].clone().requires_grad_()
    value = torch.compile(lambda x: loss(x), fullgraph=True, backend="aot_eager")(leaf)
    assert_close(torch.autograd.grad(value, leaf)[0], expected[0])
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        half = f(X[0, 0].to(dtype), Y[0].to(dtype))
        assert half.dtype == dtype
        assert_close(half, f(X[0, 0].to(dtype).double(), Y[0].to(dtype).double()).to(dtype))


def test_training_where_the_usual_code_returns_nan():
    """A batch smaller than the number of features, and ReLU features that are zero: eigenvalues ε that are equal."""
    torch.manual_seed(0)
    shared = torch.randn(16, 2)
    inputs = [torch.cat([shared, torch.randn(16, 6)], -1) for _ in range(2)]
    nets = [torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU()) for _ in range(2)]
    with torch.no_grad():
        for net in nets:
            net[0].bias[:8] = -100.0  # dead units: the covariance has equal eigenvalues ε
    X, Y = (net(x) for net, x in zip(nets, inputs, strict=True))
    theirs = torch.autograd.grad(usual(X, Y, 1e-3).sum(), nets[0][0].weight, retain_graph=True)[0]
    assert not theirs.isfinite().all()
    optimizer = torch.optim.Adam([p for net in nets for p in net.parameters()], lr=1e-2)
    loss, history = CCALoss(k=2, eps=1e-1), []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(*(net(x) for net, x in zip(nets, inputs, strict=True)))
        value.backward()
        optimizer.step()
        history.append(value.item())
    assert all(p.isfinite().all() for net in nets for p in net.parameters())
    assert history[-1] < history[0] - 0.05
    assert history[-1] < -1.9


def test_settings_and_bad_input():
    assert repr(CCALoss(3, eps=0.1)) == "CCALoss(k=3, eps=0.1)"
    X, Y = views(8, 3, 4)
    for wrong in ((X, Y[:5]), (X[:1], Y[:1]), (X, Y.float()), (X[0], Y[0])):
        with pytest.raises(sg.ShapeError, match="canonical_correlations"):
            sg.canonical_correlations(*wrong)
        with pytest.raises(sg.ShapeError, match="CCALoss"):
            CCALoss()(*wrong)
    for k in (0, 4, -1):
        with pytest.raises(sg.ArgumentError, match="expected k to be an integer from 1 to 3"):
            sg.canonical_correlations(X, Y, k)
    for make in (lambda: CCALoss(0), lambda: CCALoss(eps=-1.0), lambda: CCALoss(eps=float("inf"))):
        with pytest.raises(sg.ArgumentError, match="CCALoss"):
            make()
    bad = torch.stack([X, X])
    bad[1, 2, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match=r"canonical_correlations.*position 1"):
        sg.canonical_correlations(bad, Y)
    with pytest.raises(sg.NonFiniteError, match=r"CCALoss.*position 1"):
        CCALoss()(bad, Y)
