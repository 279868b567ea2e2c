"""Inverse p-th roots for optimisers: 50 digits, ε, pseudo-inverses, lists of mixed sizes, fallbacks and bad input."""

from itertools import product

import mpmath
import pytest
import torch
from torch.func import vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad import solvers
from spectralgrad.native import kernel
from spectralgrad.native.calls import Symmetric
from spectralgrad.optim import inverse_root, inverse_roots
from spectralgrad.testing import relative_error, with_spectrum

from . import kernel_calls
from .helpers import DTYPES, REAL, SPECTRA, in_turn, matrix, unit

DOUBLE = torch.float64


def _exact(A, p, eps=0.0):
    """(A + εI)^(−1/p) with 50 digits; eigenvalues below 1e-25 of the largest are zeros."""
    with mpmath.workdps(50):
        w, V = mpmath.eigsy(mpmath.matrix(A.double().tolist()))
        floor = max(w) * mpmath.mpf("1e-25") if not eps else 0
        values = [(x + eps) ** (-mpmath.mpf(1) / p) if x > floor or eps else 0 for x in w]
        S = V * mpmath.diag(values) * V.T
        return torch.tensor([[float(S[i, j]) for j in range(S.cols)] for i in range(S.rows)], dtype=DOUBLE)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 4.5, 8])
@pytest.mark.parametrize("spectrum", ["spread", "tie", "identity"])
def test_roots_have_fifty_digits_where_they_should(spectrum, p, dtype):
    A = matrix(spectrum, dtype)
    assert relative_error(inverse_root(A, p), _exact(A, p)) < 100 * unit(dtype) * 10  # condition number
    assert relative_error(inverse_root(A, p, eps=0.5), _exact(A, p, 0.5)) < 100 * unit(dtype) * 3


@in_turn("d, batch", product([1, 2, 5, 8, 9, 17, 40], [1, 7, 70]), dtype=DTYPES)
def test_every_way_through_the_kernel_gives_the_same_power(batch, d, dtype):
    """One matrix per lane or one after another, with d that fills vectors and with d that does not."""
    A = torch.stack([with_spectrum(torch.linspace(0.5, 2, d), dtype=dtype, seed=seed) for seed in range(batch)])
    for options, shift in (({}, 0.0), ({"eps": 0.1}, 0.1), ({"eps": 0.1, "relative": True}, 0.2 if d > 1 else 0.05)):
        S = inverse_root(A, 4, **options).to(torch.complex128 if dtype.is_complex else DOUBLE)
        power = torch.linalg.matrix_power(S, 4) @ (A.to(S.dtype) + shift * torch.eye(d, dtype=S.dtype))
        assert_close(power, torch.eye(d, dtype=S.dtype).expand_as(S), rtol=0, atol=200 * d**0.5 * unit(dtype))
        assert_close(S, S.mH, rtol=0, atol=8 * unit(dtype))


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_singular_matrices(dtype, both_ways):
    """Without ε a root of the pseudo-inverse; with it ε^(−1/p) on the null space, however small ε is."""
    X = torch.tensor([[2.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, -1.0]], dtype=dtype)
    A = (X.mT @ X).expand(20, 4, 4)
    assert relative_error(inverse_root(A, 4)[7], _exact(A[0], 4)) < 1e3 * unit(dtype)
    zero = torch.zeros(20, 4, 4, dtype=dtype)
    assert torch.equal(inverse_root(zero, 4), zero)
    assert torch.equal(inverse_root(zero, 4, eps=1e-3, relative=True), zero)
    assert_close(inverse_root(zero, 4, eps=1e-20), 1e5 * torch.eye(4, dtype=dtype).expand_as(zero))
    diagonal = torch.diag(torch.tensor([1.0, 1e-3], dtype=dtype))
    assert_close(inverse_root(diagonal, 2, rtol=1e-2).diagonal(), torch.tensor([1.0, 0.0], dtype=dtype))
    zeros = inverse_root(torch.diag(torch.tensor([1.0, 0.0], dtype=dtype)), 2, rtol=0.0, eps=3.0).diagonal()
    assert_close(zeros, torch.tensor([0.5, 0.0], dtype=dtype))  # left out, although ε is added to the others
    found = inverse_root(diagonal, 2, rtol=1e-2, eps=3.0).diagonal()
    assert_close(found, torch.tensor([0.5, 0.0], dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_finite_for_every_spectrum_and_scale(spectrum, dtype):
    for scale in (1e-30, 1.0, 1e30):
        for options in ({}, {"eps": 1e-8, "relative": True}, {"eps": 1e-30}):
            S = inverse_root(matrix(spectrum, dtype) * scale, 4, **options)
            assert bool(torch.isfinite(torch.view_as_real(S) if S.is_complex() else S).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_and_autocast(dtype):
    A = matrix("spread", torch.float32).to(dtype)
    assert_close(inverse_root(A, 4), inverse_root(A.float(), 4).to(dtype), rtol=0, atol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(inverse_root(A.float(), 4), inverse_root(A.float().clone(), 4))
        wide = inverse_root(A.float(), 4, rtol=0.0, eps=1e-9)
    assert torch.equal(wide, inverse_root(A.float(), 4, rtol=0.0, eps=1e-9))


def test_no_gradient_and_the_same_under_transforms():
    A = torch.stack([matrix("tie", seed=seed) for seed in range(3)]).requires_grad_()
    expected = inverse_root(A, 4)
    assert not expected.requires_grad
    A = A.detach()
    assert_close(vmap(lambda X: inverse_root(X, 4))(A), expected)
    assert_close(torch.compile(lambda X: inverse_root(X, 4), fullgraph=True, backend="aot_eager")(A), expected)
    assert_close(inverse_root(A.mT, 4), expected)
    assert_close(inverse_root(A, 4), sg.matrix_power(A, -0.25), rtol=1e-12, atol=1e-12)


def test_neighbours_make_no_difference():
    A = torch.stack([matrix(s, torch.float32) for s in SPECTRA])
    others = torch.stack([A[0], *(matrix(s, torch.float32, seed=1) * 1e9 for s in list(SPECTRA)[1:])])
    assert torch.equal(inverse_root(A, 4, eps=1e-6)[0], inverse_root(others, 4, eps=1e-6)[0])


def test_lists_of_mixed_sizes_types_and_roots():
    sizes, roots = (3, 8, 3, 20, 8, 0, 1), (2, 4, 2, 4, 3, 4, 4)
    mixed = [
        with_spectrum(torch.linspace(0.1, 1, d) if d else [], dtype=torch.float32 if k % 3 else DOUBLE, seed=k)
        for k, d in enumerate(sizes)
    ]
    for A, p, S in zip(mixed, roots, inverse_roots(mixed, roots, eps=1e-3), strict=True):
        assert S.dtype == A.dtype
        assert_close(S, inverse_root(A, p, eps=1e-3), rtol=64 * unit(A.dtype), atol=64 * unit(A.dtype))
    assert inverse_roots([], 4) == []


def test_a_list_takes_one_call_for_each_size():
    mixed = [with_spectrum([0.5, 1.0, 2.0], seed=k) for k in range(5)] + [torch.eye(4, dtype=DOUBLE)] * 3
    solvers.reset_report()
    inverse_roots(mixed, 4)
    assert (solvers.report().calls, solvers.report().matrices) == (2, 8)


@pytest.mark.skipif(kernel() is None, reason="needs the native kernel")
def test_a_matrix_that_the_kernel_cannot_decompose_goes_to_the_fallbacks(monkeypatch):
    A = torch.stack([matrix("spread", seed=seed) for seed in range(4)])
    expected = inverse_root(A, 4)

    def broken(factors, _):
        for x in factors:
            x[1] = torch.nan
        return factors, 1

    kernel_calls.spoiled(monkeypatch, Symmetric, "power", lambda S, _: (S, 1))
    kernel_calls.spoiled(monkeypatch, Symmetric, "eigh", broken)
    solvers.reset_report()
    assert_close(inverse_root(A, 4), expected)


def test_bad_input():
    A = torch.eye(3).repeat(4, 1, 1)
    A[2, 1, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match=r"inverse_root: .*position 2 of a batch of shape \(4,\)"):
        inverse_root(A, 4)
    with pytest.raises(sg.IndefiniteError, match=r"inverse_root: .*batch position"):
        inverse_root(torch.stack([torch.eye(3), -torch.eye(3)]), 4)
    assert_close(
        inverse_root(torch.diag(torch.tensor([1.0, -1.0])), 4, clamp=True).diagonal(), torch.tensor([1.0, 0.0])
    )
    for p in (0, -2, float("inf"), float("nan")):
        with pytest.raises(sg.ArgumentError, match=r"p to be a (finite )?number"):
            inverse_root(torch.eye(2), p)
    with pytest.raises(sg.ArgumentError, match="expected eps to be a finite number"):
        inverse_root(torch.eye(2), 4, eps=-1.0)
    with pytest.raises(sg.ShapeError, match="square"):
        inverse_root(torch.ones(2, 3), 4)


def test_positions_are_those_in_the_list():
    mixed = [torch.eye(2), torch.eye(3), torch.eye(2), torch.eye(3)]
    with pytest.raises(sg.NonFiniteError, match=r"position 3 of a batch of shape \(4,\)"):
        inverse_roots([*mixed[:3], mixed[3] * torch.inf], 4)
    with pytest.raises(sg.IndefiniteError, match=r"inverse_roots: .*batch position \(2,\)"):
        inverse_roots([*mixed[:2], -mixed[2], mixed[3]], 4)
    with pytest.raises(sg.ShapeError, match="matrix 1: expected square"):
        inverse_roots([torch.eye(2), torch.ones(2, 3)], 4)
    with pytest.raises(sg.ArgumentError, match=r"matrix 0: expected \(d, d\)"):
        inverse_roots([torch.eye(2).repeat(2, 1, 1)], 4)
    with pytest.raises(sg.ArgumentError, match="one root p for each of 4 matrices, got 2"):
        inverse_roots(mixed, [4, 4])
