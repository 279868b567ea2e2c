"""Roots by coupled iterations and warm-started eigenbases: definitions, convergence, scale, batches and bad input."""

import mpmath
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.optim import coupled_inverse_root, eigenbasis, inverse_root
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import DTYPES, matrix, unit

DOUBLE = torch.float64
ROOTS = [("newton-db", 2), ("newton-db", 4), ("newton", 1), ("newton", 2), ("newton", 3), ("newton", 4)]


def scalar(a, bound, p, iteration, steps):
    """What the iteration does to one eigenvalue, with 50 digits."""
    with mpmath.workdps(50):
        a, bound = mpmath.mpf(a), mpmath.mpf(bound)
        if iteration == "newton":
            z = (p + 1) / (2 * bound)
            x, m = z ** (mpmath.mpf(1) / p), z * a
            for _ in range(steps):
                n = (p + 1 - m) / p
                x, m = x * n, n**p * m
            return x
        for _ in range(p // 2):  # one square root, or two
            y, z = a / bound, mpmath.mpf(1)
            for _ in range(steps):
                e = (3 - z * y) / 2
                y, z = y * e, e * z
            a, bound = y * mpmath.sqrt(bound), mpmath.sqrt(bound)
        return z / bound


@pytest.mark.parametrize("scale", ["bound", "frobenius"])
@pytest.mark.parametrize(("iteration", "p"), ROOTS)
@pytest.mark.parametrize("steps", [1, 3, 10])
def test_every_step_is_that_of_the_eigenvalues(iteration, p, scale, steps):
    values = [0.01, 0.5, 1.0, 3.0]
    A = with_spectrum(values, dtype=DOUBLE)
    norm = sum(w**2 for w in values) ** 0.5 if scale == "frobenius" else sum(w**16 for w in values) ** (1 / 16)
    expected = with_spectrum([float(scalar(w, norm, p, iteration, steps)) for w in values], dtype=DOUBLE)
    assert (
        relative_error(coupled_inverse_root(A, p, iteration=iteration, scale=scale, steps=steps).root, expected) < 1e-12
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("iteration", "p"), ROOTS)
def test_enough_steps_give_the_root(iteration, p, dtype):
    A = torch.stack([matrix("spread", dtype, seed=seed) for seed in range(3)])
    root, residual = coupled_inverse_root(A, p, iteration=iteration, eps=0.01, steps=20)
    assert relative_error(root, inverse_root(A, p, eps=0.01)) < 1e3 * unit(dtype)
    assert_close(root, root.mH, rtol=0, atol=0)
    assert bool((residual < 1e3 * unit(dtype)).all())


def test_the_residual_says_whether_there_were_enough_steps():
    A = with_spectrum([1e-4, 1.0], dtype=DOUBLE)
    residuals = [coupled_inverse_root(A, 2, steps=steps).residual.item() for steps in (5, 10, 20)]
    assert residuals[0] > 0.5
    assert residuals[0] > residuals[1] > 1e-6
    assert residuals[2] < 1e-12
    assert coupled_inverse_root(torch.diag(torch.tensor([1.0, 0.0])), 2).residual == 1  # singular: never


def test_the_bound_takes_fewer_steps_than_the_norm():
    """Of 64 equal eigenvalues: the Frobenius norm is eight times too large, the bound 64^(1/16)."""
    A = torch.eye(64, dtype=DOUBLE)
    bound, norm = (coupled_inverse_root(A, 2, steps=4, scale=scale).residual.item() for scale in ("bound", "frobenius"))
    assert bound < 1e-6 < 1e-2 < norm


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("iteration", ["newton", "newton-db"])
def test_any_scale_and_no_neighbours(iteration, dtype):
    A = with_spectrum([0.2, 0.5, 1.0], dtype=dtype)
    sizes = torch.tensor([1e-30, 1.0, 1e30], dtype=dtype).view(3, 1, 1)
    roots = coupled_inverse_root(A * sizes, 2, iteration=iteration).root
    assert_close(roots * sizes.sqrt(), roots[1].expand(3, 3, 3), rtol=1e2 * unit(dtype), atol=1e2 * unit(dtype))
    assert_close(coupled_inverse_root(A, 2, iteration=iteration).root, roots[1], rtol=0, atol=4 * unit(dtype))
    zero = coupled_inverse_root(torch.zeros(2, 3, 3, dtype=dtype), 2, iteration=iteration)
    assert bool(torch.isfinite(zero.root).all())
    assert zero.residual.eq(1).all()
    assert coupled_inverse_root(torch.zeros(0, 3, 3, dtype=dtype), 2, iteration=iteration).root.shape == (0, 3, 3)


def test_coupled_roots_have_no_gradient_and_accept_half():
    A = with_spectrum([0.2, 0.5, 1.0], dtype=torch.float32)
    assert not coupled_inverse_root(A.requires_grad_(), 2).root.requires_grad
    half = A.detach().bfloat16()
    assert_close(
        coupled_inverse_root(half, 2).root, coupled_inverse_root(half.float(), 2).root.bfloat16(), rtol=0, atol=0
    )


def test_bad_input_of_coupled_roots():
    with pytest.raises(sg.ArgumentError, match="expected p=2 or 4 with iteration='newton-db', got 3"):
        coupled_inverse_root(torch.eye(2), 3)
    with pytest.raises(sg.NonFiniteError, match=r"coupled_inverse_root: .*position 1"):
        coupled_inverse_root(torch.stack([torch.eye(2), torch.eye(2) * torch.nan]), 2)
    with pytest.raises(sg.AsymmetricError, match="coupled_inverse_root"):
        coupled_inverse_root(torch.ones(2, 2).triu(), 2)


class TestEigenbasis:
    A = torch.stack([with_spectrum([0.1, 0.3, 1.0, 4.0], dtype=DOUBLE, seed=seed) for seed in range(3)])
    later = A + 1e-3 * torch.stack(
        [with_spectrum([0.0, 1.0, 2.0, 3.0], dtype=DOUBLE, seed=seed + 9) for seed in range(3)]
    )

    def test_without_a_start_it_is_the_decomposition(self):
        found = eigenbasis(self.A)
        w, V = sg.eigh(self.A)
        assert_close(found.values, w)
        assert_close(found.vectors, V)
        assert torch.equal(found.order[0], torch.arange(4))
        assert bool((found.residual < 1e-15).all())

    def test_one_step_is_a_sorted_qr_factorisation(self):
        """SOAP: the columns in the order of their Rayleigh quotients, A times them, and Q."""
        start = torch.linalg.qr(torch.randn(4, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))).Q
        found = eigenbasis(self.A[0], start)
        quotients = torch.stack([v @ self.A[0] @ v for v in start.mT])
        order = quotients.argsort(descending=True)
        Q, R = torch.linalg.qr(self.A[0] @ start[:, order])
        Q = Q * R.diagonal().sign()
        assert_close(found.vectors, Q.flip(-1))
        assert torch.equal(found.order, order.flip(-1))
        T = found.vectors.mT @ self.A[0] @ found.vectors
        assert_close(found.values, T.diagonal())
        assert_close(found.residual, (T - T.diagonal().diag()).norm() / self.A[0].norm())

    def test_a_warm_start_is_near_the_eigenvectors_and_steps_converge(self):
        cold = torch.eye(4, dtype=DOUBLE).expand(3, 4, 4)
        basis = eigenbasis(self.A).vectors
        warm = [eigenbasis(self.later, basis, steps=steps) for steps in (1, 8)]
        assert bool((warm[0].residual < 1e-3).all())
        assert bool((10 * warm[0].residual < eigenbasis(self.later, cold).residual).all())
        assert bool((1e2 * warm[1].residual < warm[0].residual).all())
        assert_close(warm[1].values, sg.eigvalsh(self.later), rtol=1e-8, atol=0)

    def test_columns_keep_their_signs_and_are_orthonormal(self):
        basis = eigenbasis(self.A).vectors * torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=DOUBLE)
        found = eigenbasis(self.later, basis)
        assert bool(((found.vectors * basis).sum(-2) > 0.9).all())
        assert_close(found.vectors.mT @ found.vectors, torch.eye(4, dtype=DOUBLE).expand(3, 4, 4))

    @pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16], ids=str)
    def test_types_scales_and_singular_matrices(self, dtype):
        for A in (
            matrix("spread", dtype if dtype != torch.bfloat16 else torch.float32).to(dtype),
            torch.zeros(3, 3).to(dtype),
        ):
            for size in (1e-30, 1.0, 1e30):
                start = torch.eye(A.shape[-1]).to(dtype)
                found = eigenbasis(A * size, start)
                assert found.vectors.dtype == dtype
                assert bool(torch.isfinite(found.residual))
                wide = found.vectors.to(torch.complex128 if dtype.is_complex else DOUBLE)
                error = (wide.mH @ wide - torch.eye(A.shape[-1])).abs().max()
                assert error < (30 * unit(dtype) if dtype != torch.bfloat16 else 0.02)

    def test_bad_input(self):
        with pytest.raises(sg.ShapeError, match=r"expected start with the shape and dtype of A, \(3, 4, 4\)"):
            eigenbasis(self.A, torch.eye(4, dtype=DOUBLE))
        with pytest.raises(sg.ArgumentError, match="expected steps to be an integer ≥ 1, got 0"):
            eigenbasis(self.A, steps=0)
        with pytest.raises(sg.AsymmetricError, match="eigenbasis"):
            eigenbasis(torch.ones(2, 2).triu())
