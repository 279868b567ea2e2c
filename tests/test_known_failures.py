"""Cases on which other libraries return NaN, raise, or return something else."""

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import random_orthogonal, relative_error

from .helpers import REAL, gradient, symmetric_noise

DOUBLE = torch.float64


def test_square_root_of_the_identity():
    G = symmetric_noise(3)
    A = torch.eye(3, dtype=DOUBLE)
    torch_way = gradient(lambda X: (lambda w, V: (V * w.sqrt()) @ V.mT)(*torch.linalg.eigh(X)), A, G)
    assert not torch.isfinite(torch_way).all()
    assert_close(gradient(sg.matrix_sqrt, A, G), G / 2)


def test_matrix_of_ones():
    A, G = torch.ones(5, 5, dtype=DOUBLE), symmetric_noise(5)
    assert_close(sg.matrix_sqrt(A), A / 5**0.5)
    for f in (
        sg.matrix_sqrt,
        sg.matrix_inv_sqrt,
        sg.matrix_log,
        lambda X: sg.eigh(X).eigenvectors,
        lambda X: sg.svd(X).U,
    ):
        assert torch.isfinite(gradient(f, A, G)).all()


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_rank_three_of_fifteen_recomposed_from_its_svd_has_gradient_one(dtype):
    generator = torch.Generator().manual_seed(0)
    M = torch.randn(15, 3, dtype=dtype, generator=generator) @ torch.randn(3, 15, dtype=dtype, generator=generator)
    g = gradient(lambda X: (lambda U, S, Vh: (U * S) @ Vh)(*sg.svd(X)), M, torch.ones(15, 15, dtype=dtype))
    assert_close(g, torch.ones_like(g), rtol=0, atol=1e4 * torch.finfo(dtype).eps)


def test_procrustes_at_a_rotation():
    """All singular values are one: the polar factor's gradient must be the skew part's."""
    R, G = random_orthogonal(4, seed=3), symmetric_noise(4) + torch.triu(torch.ones(4, 4, dtype=DOUBLE))
    W = R.mT @ G
    assert_close(gradient(sg.polar, R, G), R @ (W - W.mT) / 2, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", [sg.matrix_sqrt, sg.matrix_inv_sqrt, sg.matrix_log, sg.polar], ids=lambda f: f.__name__)
def test_zero_matrix(f):
    A = torch.zeros(4, 4, dtype=DOUBLE)
    assert torch.isfinite(f(A)).all()
    assert torch.isfinite(gradient(f, A, symmetric_noise(4))).all()


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_outer_product_with_entries_from_1e_13_to_a_tenth(dtype):
    v = torch.logspace(-13, -1, 12, dtype=DOUBLE).to(dtype)[:, None]
    A, G = v @ v.T, symmetric_noise(12, dtype)
    size = torch.linalg.vector_norm(v)
    assert_close(sg.matrix_sqrt(A), A / size, rtol=1e-4, atol=1e-4 * size.item())
    for f in (sg.matrix_sqrt, sg.matrix_inv_sqrt, lambda X: sg.eigh(X).eigenvectors, lambda X: sg.svd(X).Vh):
        assert torch.isfinite(gradient(f, A, G)).all()


@pytest.mark.parametrize("scale", [1e19, 1e-19])
def test_float32_at_the_scales_where_squares_overflow(scale):
    generator = torch.Generator().manual_seed(0)
    M = torch.randn(5, 3, generator=generator)
    expected = gradient(lambda X: sg.svd(X).U, M, torch.ones(5, 3))
    assert relative_error(gradient(lambda X: sg.svd(X).U, M * scale, torch.ones(5, 3)) * scale, expected) < 1e-4
    A = M.T @ M
    G = symmetric_noise(3, torch.float32)
    expected = gradient(sg.matrix_sqrt, A, G)
    assert relative_error(gradient(sg.matrix_sqrt, A * scale, G) * scale**0.5, expected) < 1e-4


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_sixty_four_samples_in_sixty_four_dimensions(dtype):
    """Centring costs one rank, so the covariance is singular whatever the samples."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(64, 64, dtype=DOUBLE, generator=generator).to(dtype)
    G = symmetric_noise(64, dtype)
    white = gradient(lambda Y: sg.matrix_inv_sqrt(sg.covariance(Y)) @ Y, X, G)
    reference = gradient(lambda Y: sg.matrix_inv_sqrt(sg.covariance(Y)) @ Y, X.double(), G.double())
    assert torch.isfinite(white).all()
    assert relative_error(white, reference) < 1e5 * torch.finfo(dtype).eps


def test_one_bad_matrix_among_good_ones_is_named():
    batch = torch.eye(3).repeat(4, 1, 1)
    batch[2, 1, 0] = torch.nan
    for f in (sg.eigh, sg.svd, sg.matrix_sqrt, sg.polar):
        with pytest.raises(sg.NonFiniteError, match="position 2 of a batch"):
            f(batch)


@pytest.mark.parametrize("steepness", [1.0, 1e-3, 1e-5, 1e-8, 0.0])
@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (16, 16)])
def test_polar_in_single_precision_is_orthogonal_to_rounding_at_any_condition(shape, steepness):
    """Well-conditioned ones go through the Gram matrix in double precision, the others through the SVD."""
    k = min(shape)
    U, V = random_orthogonal(shape[0], seed=1)[:, :k], random_orthogonal(shape[1], seed=2)[:, :k]
    s = torch.linspace(1, steepness, k, dtype=DOUBLE)
    M = ((U * s) @ V.mT).float()
    Q = sg.polar(M)
    gram = Q @ Q.mT if shape[0] < shape[1] else Q.mT @ Q
    assert_close(gram, torch.eye(k), rtol=0, atol=20 * torch.finfo(torch.float32).eps)
    if steepness >= 1e-3:
        assert relative_error(Q, U @ V.mT) < 20 * torch.finfo(torch.float32).eps / steepness
        G = torch.ones(shape)
        g, reference = gradient(sg.polar, M, G), gradient(sg.polar, M.double(), G.double())
        assert relative_error(g, reference) < 100 * torch.finfo(torch.float32).eps / steepness
