"""Matrices whose entries, gaps or reciprocals are at the ends of the type: denormal, tiny, huge."""

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg

from .helpers import DTYPES

FLOORS = {torch.float32: 1e-40, torch.float64: 1e-310, torch.complex64: 1e-40, torch.complex128: 1e-310}
POSITIVE = [(name, method) for name in ("sqrt", "inv_sqrt") for method in sg.methods(name)] + [("log", "exact")]


def _singular(d, rank, count, dtype, scale):
    wide = torch.promote_types(dtype, torch.float64)
    X = torch.randn(count, d, rank, dtype=wide, generator=torch.Generator().manual_seed(d))
    return (X @ X.mH * scale).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("d", [3, 6, 20])
def test_rounding_to_denormal_numbers_makes_no_matrix_indefinite(d, count, dtype):
    """Entries are rounded to multiples of the smallest number there, which is no longer relative to the norm."""
    A = _singular(d, 2, count, dtype, FLOORS[dtype])
    for name, method in POSITIVE:
        S = getattr(sg, f"matrix_{name}")(A, method=method)
        if name == "sqrt":
            assert bool(torch.isfinite(torch.view_as_real(S) if S.is_complex() else S).all())
    # n products of √A are off by n roundings of the norm and n of the smallest number
    root = sg.matrix_sqrt(A)
    info, wide = torch.finfo(dtype), torch.promote_types(dtype, torch.float64)
    if wide != dtype:
        square = root.to(wide) @ root.to(wide)
        assert_close(square, A.to(wide), rtol=0, atol=16 * d * info.tiny * info.eps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("d", [3, 6, 20])
def test_clearly_negative_denormal_eigenvalues_are_still_refused(d, count, dtype):
    A = torch.diag(torch.linspace(-1, 1, d, dtype=torch.float64) * FLOORS[dtype]).to(dtype).expand(count, d, d)
    for method in ("exact", "svd-taylor", "newton-schulz"):
        with pytest.raises(sg.IndefiniteError):
            sg.matrix_sqrt(A, method=method)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_acceptance_of_denormal_decompositions(dtype):
    A = _singular(5, 5, 1, dtype, FLOORS[dtype])[0]
    assert sg.solvers.eigh_ratio(A, torch.linalg.eigh(A)) < 30 / (FLOORS[dtype] / torch.finfo(dtype).tiny)
