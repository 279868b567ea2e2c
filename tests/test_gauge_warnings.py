"""gauge_warnings on functions put together by hand: what is reported, what is passed over, and where it cannot tell."""

import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import spectralgrad as sg
from spectralgrad.diagnostics import GaugeWarning, gauge_warnings
from spectralgrad.testing import random_orthogonal, relative_error, with_spectrum

from .helpers import DTYPES, gradient, symmetric_noise

SCALARS = {"sqrt": torch.sqrt, "inv_sqrt": torch.rsqrt, "log": lambda w: (3 * w).log(), "exp": torch.exp}


def _by_hand(f):
    """V f(λ) Vᴴ from the decomposition, as users write it."""

    def function(A):
        w, V = sg.eigh(A)
        return (V * f(w).unsqueeze(-2)) @ V.mH

    return function


def _silent(loss, A):
    """Whether the backward pass of a loss warns of nothing."""
    with gauge_warnings(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss(A.detach().clone().requires_grad_()).backward()
    return not caught


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("f", SCALARS.values(), ids=SCALARS)
def test_a_function_by_hand_at_a_tie_is_reported(f, dtype):
    G = symmetric_noise(5, dtype, seed=3)
    loss = lambda X: (_by_hand(f)(X) * G.conj()).sum().real  # noqa: E731
    with pytest.warns(GaugeWarning, match="matrix_sqrt, matrix_inv_sqrt"), gauge_warnings():
        loss(with_spectrum([0.5, 1, 1, 1, 2], dtype=dtype).requires_grad_()).backward()
    assert _silent(loss, with_spectrum([0.5, 1, 1.5, 1.7, 2], dtype=dtype))
    exact = lambda X: (sg.matrix_function(X, f) * G.conj()).sum().real  # noqa: E731
    assert _silent(exact, with_spectrum([0.5, 1, 1, 1, 2], dtype=dtype))


def test_a_warning_says_how_much_of_the_cotangent_is_concerned():
    A = with_spectrum([1.0, 1, 2]).requires_grad_()
    with (
        pytest.warns(GaugeWarning, match=r"differently, .* \(0\.5 of the cotangent\)\. Let"),
        gauge_warnings(),
    ):
        sg.eigvalsh(A)[0].backward()
    with pytest.warns(GaugeWarning, match=r"or distorts it\. Use"), gauge_warnings():
        (_by_hand(torch.sqrt)(A) * symmetric_noise(3)).sum().backward()


def test_a_function_by_hand_of_one_tied_matrix_in_a_batch_is_reported():
    A = torch.stack([with_spectrum([1.0, 2, 3]), with_spectrum([1.0, 2, 2])])
    assert not _silent(lambda X: (_by_hand(torch.sqrt)(X) * symmetric_noise(3)).sum(), A)
    assert _silent(lambda X: (_by_hand(torch.sqrt)(X) * symmetric_noise(3))[0].sum(), A)


def test_a_function_by_hand_where_the_basis_is_special_is_reported():
    """At the identity all slopes are equal; equal diagonals and entries off them give it away."""
    assert not _silent(lambda X: _by_hand(torch.sqrt)(X).sum(), torch.eye(4, dtype=torch.float64))


def test_a_product_of_singular_factors_at_a_tie_is_reported():
    M, G = with_spectrum([1.0, 1, 1, 2])[:, :4] @ random_orthogonal(4, seed=9), symmetric_noise(4)

    def loss(X):
        U, S, Vh = sg.svd(X)
        return ((U * S.sqrt()) @ Vh * G).sum()

    assert not _silent(loss, M)


def test_what_is_reported_is_lost():
    """The error that the warning speaks of, and none in the losses that are passed over."""
    A, G = with_spectrum([0.5, 1, 1, 2]), symmetric_noise(4)
    truth = gradient(sg.matrix_sqrt, A, G)
    assert relative_error(gradient(_by_hand(torch.sqrt), A, G), truth) > 0.01
    diagonal, D = torch.diag(torch.tensor([1.0, 1, 2, 4], dtype=torch.float64)), torch.diag(torch.arange(4.0).double())
    assert relative_error(gradient(_by_hand(torch.sqrt), diagonal, D), gradient(sg.matrix_sqrt, diagonal, D)) < 1e-14
    assert _silent(lambda X: (_by_hand(torch.sqrt)(X) * D).sum(), diagonal)


TIED = {
    "projector": lambda w, V, G: (V[:, 1:3] @ V[:, 1:3].mT * G).sum(),
    "two projectors": lambda w, V, G: (V[:, 1:3] @ V[:, 1:3].mT @ G @ V[:, 3:] @ V[:, 3:].mT).sum(),
    "eigenvalues": lambda w, V, G: w.log().sum(),
    "projector and eigenvalues": lambda w, V, G: (V[:, 1:3] @ V[:, 1:3].mT * G).sum() + w.square().sum(),
    "mean eigenvalue times projector": lambda w, V, G: w[1:3].mean() * (V[:, 1:3] @ V[:, 1:3].mT * G).sum(),
    "function constant at the tie": lambda w, V, G: ((V * (1 + (w - 1).square())) @ V.mT * G).sum(),
    "function zero at the tie": lambda w, V, G: ((V * (w - 1).square()) @ V.mT * G).sum(),
    "other vectors": lambda w, V, G: (V[:, 3] * w[3]) @ G @ V[:, 3],
}


@pytest.mark.parametrize("loss", TIED.values(), ids=TIED)
def test_losses_that_lose_nothing_at_a_tie_are_passed_over(loss):
    for seed in range(20):
        A, G = with_spectrum([0.5, 1, 1, 2], seed=seed), symmetric_noise(4, seed=seed)
        assert _silent(lambda X, G=G: loss(*sg.eigh(X), G), A), seed


def test_the_limits_of_what_cotangents_show():
    """Losses with the same cotangents cannot be told apart: one is missed and one reported that loses nothing."""
    identity = torch.eye(3, dtype=torch.float64)

    def reported(X):
        w, V = sg.eigh(X)
        return w.sqrt().mean() * (V @ V.mT).sum()

    assert _silent(lambda X: _by_hand(torch.log)(X).sum(), identity)  # missed: log 1 = 0, so it looks like log det
    assert not _silent(reported, identity)


@pytest.mark.parametrize("method", ["svd", "svd-pi", "svd-pade"])
def test_a_function_by_hand_is_noticed_whatever_the_rule(method):
    A = with_spectrum([1.0, 2.0, 2.0, 3.0, 3.0, 3.0]).requires_grad_()
    w, V = sg.eigh(A, method=method)
    G = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with sg.diagnostics.gauge_warnings(), pytest.warns(sg.diagnostics.GaugeWarning):
        ((V * w.sqrt()) @ V.mH * G).sum().backward()


LOSSES = {
    "eigh": lambda A: sg.eigh(A).eigenvectors[0].sum(),
    "eigenvalues": lambda A: sg.eigh(A).eigenvalues[0],
    "svd": lambda A: sg.svd(A).U[0].sum(),
    "eigvalsh": lambda A: sg.eigvalsh(A)[0],
    "svdvals": lambda A: sg.svdvals(A)[0],
    "spectral_projector": lambda A: sg.spectral_projector(A, 1).sum(),
    "pencil": lambda A: sg.eigh(A, torch.eye(3, dtype=A.dtype)).eigenvectors[0].sum(),
    "truncated": lambda A: sg.eigh(A, k=1).eigenvectors[0].sum(),
    "low_rank": lambda A: sg.low_rank(A, 1).sum(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_checkpointed_functions_are_judged(loss):
    """The saved tensors of a checkpoint may be read only once."""
    A = with_spectrum(torch.tensor([1.0, 1.0, 3.0], dtype=torch.float64)).requires_grad_()
    with gauge_warnings(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint(loss, A, use_reentrant=False).backward()
    assert A.grad.isfinite().all()
