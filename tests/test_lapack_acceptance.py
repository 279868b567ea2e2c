"""LAPACK's own acceptance test for the forward pass: its 21 kinds of matrix, its ratios, its bar of 30."""

import mpmath
import pytest
import torch

import spectralgrad as sg

from .helpers import DTYPES, in_turn, unit
from .lapack_matrices import BAR, KINDS, SINGULAR_KINDS, eigh_bar, hermitian_matrix, rectangular_matrix, svd_bar

SIZES = (1, 2, 3, 5, 16, 33, 64, 128)
SHAPES = ((1, 1), (1, 5), (5, 1), (3, 5), (16, 16), (33, 7), (20, 64))
EXACT_SIZES = (1, 2, 3, 5)


@in_turn("kind", KINDS, dtype=DTYPES)
def test_eigh_passes_lapacks_bar(kind, dtype):
    for n in SIZES:
        A = hermitian_matrix(KINDS[kind], n, dtype)
        w, V = sg.eigh(A)
        assert eigh_bar(A, w, V) < BAR, n
        assert bool((w.diff() >= 0).all()), n


@in_turn("kind", KINDS, dtype=DTYPES)
def test_eigenvalues_agree_with_a_forty_digit_reference(kind, dtype):
    for n in EXACT_SIZES:
        A = hermitian_matrix(KINDS[kind], n, dtype)
        largest = float(A.abs().max()) or 1.0
        w, reference = sg.eigh(A).eigenvalues.to(torch.float64) / largest, _forty_digits(A, largest)
        assert float((w - reference).abs().max()) <= BAR * n * unit(dtype) * float(reference.abs().max()), n


def _forty_digits(A, largest):
    """The eigenvalues of A/largest, from the entries as stored."""
    with mpmath.workdps(40):
        exact = mpmath.matrix([[mpmath.mpmathify(x) / largest for x in row] for row in A.tolist()])
        values = (mpmath.eighe if A.is_complex() else mpmath.eigsy)(exact, eigvals_only=True)
        return torch.tensor(sorted(map(float, values)), dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_batch_of_all_kinds_passes_the_bar_at_once(dtype):
    A = torch.stack([hermitian_matrix(kind, 16, dtype) for kind in KINDS.values()])
    w, V = sg.eigh(A)
    assert max(map(eigh_bar, A, w, V)) < BAR


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [2, 16])
@pytest.mark.parametrize("edge", ["overflow", "underflow"])
def test_eigh_passes_the_bar_at_the_edge_of_the_range(edge, n, dtype):
    info = torch.finfo(dtype)
    scale = info.max / (4 * n) if edge == "overflow" else info.tiny * n
    A = hermitian_matrix(KINDS["13 random entries"], n, dtype) * scale
    assert eigh_bar(A, *sg.eigh(A)) < BAR


@in_turn("kind", SINGULAR_KINDS, dtype=DTYPES, full=[False, True])
def test_svd_passes_lapacks_bar(kind, dtype, full):
    for shape in SHAPES:
        M = rectangular_matrix(SINGULAR_KINDS[kind], *shape, dtype)
        U, S, Vh = sg.svd(M, full_matrices=full)
        assert svd_bar(M, U, S, Vh) < BAR, shape
        assert bool((S.diff() <= 0).all()), shape
        assert float(S.min()) >= 0, shape


@pytest.mark.parametrize("error", [0.0, 1e-3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_ladders_own_ratio_agrees_with_this_one(kind, error):
    A = hermitian_matrix(KINDS[kind], 5, torch.float32)
    w, V = torch.linalg.eigh(A)
    ratio = eigh_bar(A, w, V + error)
    assert (ratio < BAR) == (error == 0)
    assert sg.solvers.eigh_ratio(A, (w, V + error)) == pytest.approx(ratio, rel=1e-6)
