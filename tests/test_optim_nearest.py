"""The nearest orthogonal matrix for every shape, rank, scale and type."""

import numpy as np
import pytest
import torch
from scipy.linalg import polar
from torch.testing import assert_close

from spectralgrad.optim import nearest_orthogonal
from spectralgrad.testing import random_orthogonal

SHAPES = [(8, 8), (5, 9), (9, 5), (64, 27), (1, 7), (7, 1)]
METHODS = ("svd", "gram")


def gaussian(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def with_singular_values(m, n, s, seed=0):
    k = len(s)
    U, V = random_orthogonal(m, seed=seed)[:, :k], random_orthogonal(n, seed=seed + 1)[:, :k]
    return U, torch.tensor(s, dtype=torch.float64), V


def reference(G):
    """scipy's polar factor, for each side its own."""
    return torch.from_numpy(polar(G.double().numpy(), side="right" if G.shape[0] >= G.shape[1] else "left")[0])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_it_is_the_polar_factor(shape, method, dtype):
    G = gaussian(*shape, dtype=dtype)
    condition = float(torch.linalg.cond(G.double()))
    allowed = 30 * max(shape) ** 0.5 * torch.finfo(dtype).eps * condition
    R = nearest_orthogonal(G, method=method)
    assert R.dtype == dtype
    assert float((R.double() - reference(G)).norm()) < allowed


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(8, 8), (5, 9), (9, 5)], ids=str)
def test_rank_deficient_gradients_give_the_partial_isometry(method, dtype, shape):
    U, s, V = with_singular_values(*shape, [3.0, 1.0, 0.5])
    R = nearest_orthogonal(((U * s) @ V.T).to(dtype), method=method).double()
    assert float((R - U @ V.T).norm()) < 200 * torch.finfo(dtype).eps
    assert int(torch.linalg.matrix_rank(R, rtol=1e-3)) == 3


@pytest.mark.parametrize("method", [*METHODS, "polynomial"])
def test_zero_stays_zero_and_empty_stays_empty(method):
    assert bool((nearest_orthogonal(torch.zeros(4, 3), method=method) == 0).all())
    assert nearest_orthogonal(torch.zeros(0, 3), method=method).shape == (0, 3)
    stacked = torch.stack([torch.zeros(3, 4), gaussian(3, 4, dtype=torch.float32)])
    assert bool((nearest_orthogonal(stacked, method=method)[0] == 0).all())


@pytest.mark.parametrize("method", [*METHODS, "polynomial"])
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_it_does_not_depend_on_the_scale(method, scale):
    G = gaussian(6, 4, dtype=torch.float32)
    assert_close(nearest_orthogonal(G * scale, method=method), nearest_orthogonal(G, method=method), rtol=0, atol=3e-5)


def test_the_polynomial_method_does_what_its_docstring_says():
    s = np.logspace(0, -6, 40)
    U, s, V = with_singular_values(40, 60, s.tolist())
    R = nearest_orthogonal((U * s) @ V.T, method="polynomial")
    after = torch.linalg.vecdot(U.T @ R, V.T)
    relative = s / s.norm()
    assert float((after[relative > 1e-3] - 1).abs().max()) < 1e-3
    assert float(after.min()) > 0
    assert float(after.max()) < 1 + 1e-3
    assert float(torch.linalg.matrix_norm(U.T @ R @ V - torch.diag(after), 2)) < 1e-10


@pytest.mark.parametrize("method", METHODS)
def test_half_and_complex_gradients(method):
    half = nearest_orthogonal(gaussian(6, 4).to(torch.bfloat16), method=method)
    assert half.dtype == torch.bfloat16
    assert float((half.float().T @ half.float() - torch.eye(4)).norm()) < 4 * 6 * torch.finfo(torch.bfloat16).eps
    Z = torch.complex(gaussian(6, 4), gaussian(6, 4, seed=1))
    Q = nearest_orthogonal(Z, method=method)
    assert float((Q.mH @ Q - torch.eye(4)).abs().max()) < 1e-14 * 30
    H = Q.mH @ Z
    assert float((H - H.mH).abs().max()) < 1e-13
    assert float(torch.linalg.eigvalsh(H).min()) > 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(64, 27), (9, 6), (6, 9)], ids=str)
def test_the_rounding_of_a_half_type_is_no_direction(method, dtype, shape):
    G = (gaussian(shape[0], 2) @ gaussian(2, shape[1], seed=1)).to(dtype)  # rank 2, but for the rounding
    s = torch.linalg.svdvals(nearest_orthogonal(G, method=method).double())
    assert float((s[:2] - 1).abs().max()) < 8 * torch.finfo(dtype).eps
    assert float(s[2:].max()) < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["gram", "svd", "polynomial"])
def test_singular_values_beyond_the_largest_number_do_no_harm(method, dtype):
    M = gaussian(16, 16).to(dtype)
    huge = M * (torch.finfo(dtype).max / 8 / M.abs().max())
    assert_close(nearest_orthogonal(huge, method=method), nearest_orthogonal(M, method=method), rtol=1e-3, atol=1e-3)


def test_the_polynomial_method_takes_entries_of_any_ratio():
    G = torch.tensor([[1.0, 1e-40], [1e-40, 1.0]])
    assert_close(nearest_orthogonal(G, method="polynomial"), torch.eye(2), rtol=1e-3, atol=1e-3)
