"""Truncation by k: the gradient includes how the kept vectors rotate into the discarded ones."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import DTYPES, matrix, symmetric_noise, symmetrized

pytestmark = pytest.mark.usefixtures("both_ways")

SPREAD = [0.4, 0.9, 1.7, 2.5, 3.1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", [0, 1, 3, 6])
def test_the_kept_pairs_are_those_of_the_whole_decomposition(k, dtype):
    A = matrix("spread", dtype)
    w, V = sg.eigh(A)
    for largest, kept in ((True, slice(6 - k, 6)), (False, slice(0, k))):
        part = sg.eigh(A, k=k, largest=largest)
        assert torch.equal(part.eigenvalues, w[kept])
        assert torch.equal(part.eigenvectors, V[:, kept])
    U, S, Vh = sg.svd(A[:, :4])
    part = sg.svd(A[:, :4], k=min(k, 4))
    assert all(torch.equal(x, y) for x, y in zip(part, (U[:, :k], S[:k], Vh[:k]), strict=True))


def _low_rank(M, k=2):
    U, S, Vh = sg.svd(M, k=k)
    return (U * S) @ Vh


def _subspace(A, largest=True):
    w, V = sg.eigh(A, k=2, largest=largest)
    return (V * w) @ V.mH


@pytest.mark.parametrize("f", [_subspace, lambda A: _subspace(A, False), _low_rank])
def test_the_gradient_agrees_with_finite_differences(f):
    A = with_spectrum(SPREAD).requires_grad_()
    assert gradcheck(symmetrized(f), (A,), check_forward_ad=True)


def test_without_the_discarded_space_it_would_be_wrong():
    """Projecting the gradient on the kept pairs is what a truncated backward pass of earlier codes amounts to."""
    M, G = with_spectrum(SPREAD).requires_grad_(), symmetric_noise(5)
    U, _, Vh = sg.svd(M.detach(), k=2)
    (g,) = torch.autograd.grad((_low_rank(M) * G).sum(), M)
    h, D = 1e-6, symmetric_noise(5, seed=3)
    slope = ((_low_rank(M.detach() + h * D) - _low_rank(M.detach() - h * D)) * G).sum() / (2 * h)
    assert abs((g * D).sum() - slope) < 1e-8
    dropped = U @ U.mT @ g @ Vh.mT @ Vh
    assert abs((dropped * D).sum() - slope) > 0.1 * abs(slope)
    assert relative_error(dropped, g) > 0.3


def test_ties_among_the_discarded_are_harmless():
    A = with_spectrum([1.0, 1.0, 1.0, 2.0, 3.0])
    projector = lambda A: (lambda V: V @ V.mT)(sg.eigh(A, k=2).eigenvectors)  # noqa: E731
    gradients = [
        torch.autograd.grad((f(leaf := A.clone().requires_grad_()) * symmetric_noise(5)).sum(), leaf)[0]
        for f in (projector, lambda A: sg.spectral_projector(A, 2))
    ]
    assert_close(*gradients)


def test_generalised_problems_are_truncated_too():
    A, B = matrix("spread"), with_spectrum([0.5, 0.8, 1.0, 1.0, 2.0, 3.0], seed=7)
    assert torch.equal(sg.eigh(A, B, k=2).eigenvectors, sg.eigh(A, B).eigenvectors[:, -2:])


@pytest.mark.parametrize("k", [-1, 7, 1.5, True, "2"])
def test_k_out_of_range_is_refused(k):
    for f in (sg.eigh, sg.svd):
        with pytest.raises(sg.ArgumentError, match=r"expected k to be an integer (from 0 to 6|or None)"):
            f(matrix("spread"), k=k)
    with pytest.raises(sg.ArgumentError, match="either k or full_matrices"):
        sg.svd(matrix("spread"), True, k=2)
