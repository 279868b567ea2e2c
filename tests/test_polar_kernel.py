"""Polar factors, alignments and projectors by the kernel: what it fails on is mended alone, sizes agree with torch."""

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import kernel, library
from spectralgrad.native.calls import Singular
from spectralgrad.testing import with_spectrum

from . import kernel_calls
from .helpers import REAL, noise, unit

pytestmark = pytest.mark.skipif(kernel() is None, reason="the native kernel was not built or is switched off")
BATCHES = ((), (1,), (19,))


def _without_the_second(found, failed):
    """The results of the kernel's calls as if the second matrix had failed."""
    for x in found:
        x[1] = torch.nan
    return found, failed + 1


@pytest.mark.parametrize("special", [True, False])
def test_a_polar_factor_that_the_kernel_fails_on_is_mended_alone(special, monkeypatch):
    M = noise(3, 4, 4)
    whole = sg.polar(M, special=special)
    kernel_calls.spoiled(monkeypatch, Singular, "polar", _without_the_second)
    mended = sg.polar(M, special=special)
    assert torch.equal(mended[::2], whole[::2])
    assert_close(mended[1], whole[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{"scale": True}, {"translation": False}], ids=str)
@pytest.mark.parametrize("weighted", [True, False])
def test_an_alignment_that_the_kernel_fails_on_is_mended_alone(options, weighted, monkeypatch):
    X, Y, w = noise(3, 9, 3), noise(3, 9, 3, seed=1), noise(3, 9, seed=2).abs() if weighted else None
    whole = sg.procrustes(X, Y, w, **options)
    kernel_calls.spoiled(monkeypatch, Singular, "align", _without_the_second)
    for part, other in zip(sg.procrustes(X, Y, w, **options), whole, strict=True):
        assert torch.equal(part[::2], other[::2])
        assert_close(part[1], other[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 9, 12, 17, 32])
@pytest.mark.parametrize("special", [True, False])
def test_factors_and_gradients_of_every_size_are_those_without_the_kernel(n, special, dtype, monkeypatch):
    for batch in BATCHES:
        M, G = noise(*batch, n, n) / n**0.5 + torch.eye(n), noise(*batch, n, n, seed=1)
        M[..., 0] *= -1  # so that most are no rotations
        found = _with_gradient(lambda M: sg.polar(M, special=special), M.to(dtype), G.to(dtype))
        with monkeypatch.context() as patch:
            patch.setattr(library, "switched_off", True)
            expected = _with_gradient(lambda M: sg.polar(M, special=special), M, G)
        S = torch.linalg.svdvals(M)
        least = (S[..., -2] - S[..., -1] if special else S[..., -2] + S[..., -1]).min() if n > 1 else S.min()
        for part, other in zip(found, expected, strict=True):
            assert (part - other).norm() <= 100 * n * unit(dtype) / float(least) * (1 + other.norm() / float(least))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 9, 33])
def test_projectors_and_gradients_are_those_without_the_kernel(d, dtype, monkeypatch):
    B = with_spectrum([1.0 + k for k in range(d)], dtype=torch.float64, seed=d)
    for batch in BATCHES:
        A, G = B.expand(*batch, d, d).contiguous(), noise(*batch, d, d, seed=1)
        found = _with_gradient(_leading_half, A.to(dtype), G.to(dtype))
        with monkeypatch.context() as patch:
            patch.setattr(library, "switched_off", True)
            expected = _with_gradient(_leading_half, A, G)
        for part, other in zip(found, expected, strict=True):
            assert_close(part.double(), other, rtol=0, atol=100 * d * d * unit(dtype))


def _leading_half(A):
    return sg.spectral_projector(A, (A.shape[-1] + 1) // 2)


def _with_gradient(function, X, G):
    X = X.clone().requires_grad_()
    Y = function(X)
    return Y.detach(), torch.autograd.grad(Y, X, G)[0]
