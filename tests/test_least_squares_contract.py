"""pinv, lstsq and solve_hermitian: transforms, batches, the margin, half types, empty matrices and bad input."""

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import with_spectrum

from .test_least_squares import DOUBLE, general, low_rank, orthonormal


def test_transforms_and_compilers_agree():
    M, B = general(3, 4, 3), general(3, 4, 2, seed=1)
    M[1] = low_rank(4, 3, 2)
    d = torch.tensor([0.0, 0.3, 0.5], dtype=DOUBLE)

    def loss(M, B, d):
        return sg.lstsq(M, B, damping=d).solution.square().sum()

    leaves = [x.clone().requires_grad_() for x in (M, B, d)]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    assert_close(torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(M, B, d), expected)
    one = general(4, 3)
    jacobians = [of(lambda M: sg.pinv(M))(one) for of in (torch.func.jacrev, torch.func.jacfwd)]
    assert_close(*jacobians)
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    assert_close(torch.autograd.grad(compiled(*leaves), leaves), expected)
    assert_close(torch.compile(sg.lstsq, backend="aot_eager", fullgraph=True)(M, B), sg.lstsq(M, B))


def test_a_matrix_does_not_depend_on_its_batch_and_gradients_of_broadcast_ones_add_up():
    ranks = torch.stack([low_rank(5, 3, r) for r in (3, 1, 2)])
    B = general(5, 2, seed=2).requires_grad_()
    together = sg.lstsq(ranks, B, damping=torch.tensor([0.0, 0.0, 0.5], dtype=DOUBLE))
    for k, damping in enumerate((0.0, 0.0, 0.5)):
        assert_close([x[k] for x in together], list(sg.lstsq(ranks[k], B, damping=damping)))
    assert together.rank.tolist() == [3, 1, 2]
    (gradient,) = torch.autograd.grad(together.solution.sum(), B)
    alone = [sg.lstsq(M, B, damping=damping).solution for M, damping in zip(ranks, (0.0, 0.0, 0.5), strict=True)]
    assert_close(gradient, sum(torch.autograd.grad(x.sum(), B)[0] for x in alone))
    assert sg.lstsq(ranks[:, None], B.expand(4, 5, 2)).solution.shape == (3, 4, 3, 2)


@pytest.mark.parametrize(
    ("singular", "rtol"),
    [([4.0, 2.0, 1.0], 0.1), ([4.0, 1.0, 0.2], 0.1), ([1.0, 0.0, 0.0], 0.3), ([4.0, 0.5, 0.0], 0.1)],
)
def test_the_margin_is_the_distance_to_the_next_rank(singular, rtol):
    U, V = orthonormal(5, 3), orthonormal(3, 3, seed=1)

    def matrix(values):
        return U * torch.tensor(values, dtype=DOUBLE) @ V.mT

    found = sg.lstsq(matrix(singular), general(5, 1), rtol=rtol)
    nearest = min(singular, key=lambda s: abs(s - rtol * singular[0]))
    towards = -1 if nearest > rtol * singular[0] else 1
    place = singular.index(nearest)
    for share, changed in ((0.99, 0), (1.01, towards)):
        moved = list(singular)
        moved[place] += towards * share * float(found.margin) * singular[0]
        assert int(sg.lstsq(matrix(moved), general(5, 1), rtol=rtol).rank) == int(found.rank) + changed


def test_damping_below_the_tolerance_does_not_revive_noise():
    M, B = low_rank(6, 4, 2), general(6, 1)
    for damping in (1e-40, 1e-20, 1e-16):
        assert_close(sg.lstsq(M, B, damping=damping).solution, sg.lstsq(M, B).solution)
    assert_close(sg.lstsq(M, B, damping=1e-5).solution, sg.lstsq(M, B).solution, rtol=1e-4, atol=1e-6)


def test_transforms_cut_off_the_same_singular_values_if_the_damping_is_near_the_tolerance():
    M = orthonormal(5, 3) * torch.tensor([1.0, 0.5, 0.08], dtype=DOUBLE)
    B, damping = general(5, 2), torch.tensor([0.08, 0.12], dtype=DOUBLE)

    def solved(damping):
        return sg.lstsq(M, B, rtol=0.1, damping=damping).solution

    expected = torch.stack([solved(d) for d in damping])
    assert_close(torch.func.vmap(solved)(damping), expected)
    assert_close(expected[0, 2], torch.zeros(2, dtype=DOUBLE))
    assert (expected[1, 2] != 0).all()


def test_residuals_of_consistent_systems_are_small_and_have_no_gradient():
    M = with_spectrum([1.0, 1e-3, 1e-6], dtype=DOUBLE).requires_grad_()
    found = sg.lstsq(M, M.detach() @ general(3, 2))
    assert float(found.residual.max()) < 1e-14
    assert found.residual.shape == (2,)
    assert not any(x.requires_grad for x in found[1:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_are_computed_in_single_precision(dtype):
    M, B = general(5, 3).to(dtype).requires_grad_(), general(5, 2, seed=1).to(dtype)
    found = sg.lstsq(M, B, damping=torch.tensor(0.5))
    wide = sg.lstsq(M.float(), B.float(), damping=0.5)
    assert found.solution.dtype == found.residual.dtype == found.margin.dtype == dtype
    assert torch.equal(found.solution, wide.solution.to(dtype))
    assert torch.equal(sg.pinv(M), sg.pinv(M.float()).to(dtype))
    assert torch.autograd.grad(found.solution.sum(), M)[0].dtype == dtype


def test_empty_and_zero_matrices():
    for shape in ((0, 3), (3, 0), (2, 0, 3), (0, 4, 3)):
        M = torch.zeros(*shape)
        B = torch.ones(*shape[:-1], 2)
        found = sg.lstsq(M, B)
        assert found.solution.shape == (*shape[:-2], shape[-1], 2)
        assert found.rank.shape == shape[:-2]
        assert sg.pinv(M).shape == M.mT.shape
    zero = torch.zeros(3, 2, requires_grad=True)
    found = sg.lstsq(zero, torch.ones(3, 1))
    assert found.solution.abs().sum() == 0 == int(found.rank)
    assert_close(found.residual, torch.tensor([3.0]).sqrt())
    assert torch.autograd.grad(found.solution.sum(), zero)[0].abs().sum() == 0


def test_hermitian_systems_agree_with_the_pseudo_inverse_and_refuse_others():
    A = with_spectrum([3.0, -2.0, 0.0, 3.0], dtype=DOUBLE)
    B = general(2, 4, 3)
    assert_close(sg.solve_hermitian(A, B), torch.linalg.pinv(A, hermitian=True) @ B)
    assert_close(sg.solve_hermitian(1e200 * A, 1e200 * B), sg.solve_hermitian(A, B))
    with pytest.raises(sg.AsymmetricError, match="solve_hermitian: expected a symmetric"):
        sg.solve_hermitian(general(4, 4), B)


M3, B3 = torch.ones(2, 3, 2), torch.ones(2, 3, 1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sg.pinv(torch.ones(3)), sg.ShapeError, r"pinv: expected matrices"),
        (lambda: sg.pinv(M3, rtol=2.0), sg.ArgumentError, r"pinv: expected rtol"),
        (lambda: sg.pinv(torch.tensor([[[1.0]], [[torch.nan]]])), sg.NonFiniteError, r"pinv: .* position 1 of a batch"),
        (lambda: sg.lstsq(M3.int(), B3), sg.ShapeError, r"lstsq, M: expected a floating-point"),
        (lambda: sg.lstsq(M3, B3.double()), sg.ShapeError, r"lstsq: expected M .* same dtype"),
        (lambda: sg.lstsq(M3, B3[:, :2]), sg.ShapeError, r"lstsq: expected M \(\*, m, n\) and B \(\*, m, r\)"),
        (lambda: sg.lstsq(M3, torch.ones(3, 3, 1)), sg.ShapeError, r"batch dimensions that broadcast"),
        (lambda: sg.lstsq(M3, torch.ones(3)), sg.ShapeError, r"lstsq, B: expected matrices"),
        (lambda: sg.lstsq(M3, B3 * torch.inf), sg.NonFiniteError, r"lstsq, B: .* positions 0, 1"),
        (lambda: sg.lstsq(M3 * torch.nan, B3), sg.NonFiniteError, r"lstsq: expected finite input"),
        (
            lambda: sg.lstsq(M3, B3, damping=-1.0),
            sg.ArgumentError,
            r"lstsq: expected damping to be a finite number ≥ 0",
        ),
        (lambda: sg.lstsq(M3, B3, damping=torch.ones(3)), sg.ShapeError, r"lstsq: expected a real damping"),
        (lambda: sg.solve_hermitian(M3, B3), sg.ShapeError, r"solve_hermitian, A: expected square"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
