"""pinv, lstsq and solve_hermitian at any shape, rank and scale: against 50 digits, scipy and finite differences."""

import mpmath as mp
import pytest
import scipy.linalg
import scipy.sparse.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import library

DOUBLE = torch.float64
TYPES = pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128], ids=str)
both_ways = pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "torch"])
SHAPES = pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)], ids=str)


def general(*shape, dtype=DOUBLE, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def orthonormal(m, n, dtype=DOUBLE, seed=0):
    return torch.linalg.qr(general(m, n, dtype=dtype, seed=seed)).Q


def low_rank(m, n, rank, dtype=DOUBLE):
    return general(m, rank, dtype=dtype) @ general(rank, n, dtype=dtype, seed=1)


def difference_of_digits(function, inputs, directions):
    """The derivative of a function of mpmath's matrices along directions, by central differences in 50 digits."""
    with mp.workdps(50):
        h = mp.mpf(10) ** -14
        X, D = ([mp.matrix(x.tolist()) for x in given] for given in (inputs, directions))
        ends = [function(*(x + s * h * d for x, d in zip(X, D, strict=True))) for s in (1, -1)]
        change = (ends[0] - ends[1]) / (2 * h)
        return torch.tensor([[complex(v) for v in change[i, :]] for i in range(change.rows)], dtype=torch.complex128)


def digits_of(function, *inputs):
    with mp.workdps(50):
        found = function(*(mp.matrix(x.tolist()) for x in inputs))
        return torch.tensor([[complex(v) for v in found[i, :]] for i in range(found.rows)], dtype=torch.complex128)


def inverse_of_product(L, R):
    """(LR)⁺ of factors of full rank."""
    return R.H * (R * R.H) ** -1 * (L.H * L) ** -1 * L.H


@both_ways
@TYPES
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("tied", [False, True], ids=["apart", "tied"])
def test_pseudo_inverses_and_their_gradients_agree_with_fifty_digits(tied, rank, dtype, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    L, R = (orthonormal(5, rank, dtype), orthonormal(3, rank, dtype, 1).mH) if tied else (None, None)
    if not tied:
        L, R = general(5, rank, dtype=dtype), general(rank, 3, dtype=dtype, seed=1)
    dL, dR = general(5, rank, dtype=dtype, seed=2), general(rank, 3, dtype=dtype, seed=3)
    M, G = (L @ R).requires_grad_(), general(3, 5, dtype=dtype, seed=4)
    P = sg.pinv(M, rtol=1e-10)
    size = 100 * torch.finfo(DOUBLE).eps * torch.linalg.cond(L) * torch.linalg.cond(R)
    expected = digits_of(inverse_of_product, L, R)
    assert (P - expected).abs().max() < size * expected.abs().max() * 10
    (gradient,) = torch.autograd.grad(P, M, G)
    found = (gradient.conj() * (dL @ R + L @ dR)).sum().real
    moved = difference_of_digits(inverse_of_product, (L, R), (dL, dR))
    assert abs(found - (G.conj() * moved).sum().real) < 10 * size * moved.abs().max() * gradient.numel()


@TYPES
@SHAPES
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
def test_moore_penrose_conditions(scale, rank, shape, dtype):
    M = scale * low_rank(*shape, rank, dtype)
    P = sg.pinv(M)
    assert P.shape == (shape[1], shape[0])
    left, right = M @ P, P @ M
    unit = 1e-12 * torch.linalg.cond(M / scale, 2).clamp_max(1e3) if rank == min(shape) else 1e-10
    assert ((left @ M - M).abs() <= unit * scale).all()
    assert ((right @ P - P).abs() <= unit / scale).all()
    for projector in (left, right):
        assert ((projector - projector.mH).abs() < unit).all()
        assert_close(projector.diagonal().real.sum(), torch.tensor(float(rank), dtype=DOUBLE))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales_of_single_precision(scale):
    M, B = low_rank(6, 4, 2).float(), general(6, 2).float()
    assert_close(sg.pinv(scale * M) * scale, sg.pinv(M))
    found, expected = (sg.lstsq(c * M, B, damping=0.3 * c) for c in (scale, 1.0))
    assert_close(found.solution * scale, expected.solution)
    assert_close(found.residual, expected.residual)
    assert int(found.rank) == 2


def test_values_agree_with_scipy():
    for m, n, rank in ((6, 4, 4), (4, 6, 4), (6, 4, 2), (3, 5, 1)):
        M, B = low_rank(m, n, rank), general(m, 2, seed=5)
        X, _, found, _ = scipy.linalg.lstsq(M.numpy(), B.numpy(), cond=1e-12)
        ours = sg.lstsq(M, B)
        assert_close(ours.solution, torch.from_numpy(X))
        assert int(ours.rank) == found == rank
        assert_close(sg.pinv(M), torch.from_numpy(scipy.linalg.pinv(M.numpy(), rtol=1e-12)))


def test_damping_agrees_with_lsqr():
    M, b = general(7, 4), general(7, seed=1)
    expected = scipy.sparse.linalg.lsqr(M.numpy(), b.numpy(), damp=0.7, atol=1e-14, btol=1e-14)[0]
    assert_close(sg.lstsq(M, b[:, None], damping=0.7).solution[:, 0], torch.from_numpy(expected), rtol=1e-9, atol=1e-9)


@both_ways
@TYPES
@SHAPES
@pytest.mark.parametrize("rank", [2, 3])
def test_gradients_of_damped_problems_agree_with_fifty_digits(rank, shape, dtype, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    M, B = low_rank(*shape, rank, dtype).requires_grad_(), general(shape[0], 2, dtype=dtype, seed=2).requires_grad_()
    damping = torch.tensor(0.3, dtype=DOUBLE, requires_grad=True)

    def ridge(M, B, d):
        return (M.H * M + d[0] ** 2 * mp.eye(M.cols)) ** -1 * M.H * B

    inputs = M.detach(), B.detach(), damping.detach().view(1, 1)
    directions = (
        general(*shape, dtype=dtype, seed=3),
        general(shape[0], 2, dtype=dtype, seed=4),
        torch.ones(1, 1, dtype=DOUBLE),
    )
    X = sg.lstsq(M, B, damping=damping).solution
    assert_close(X.to(torch.complex128), digits_of(ridge, *inputs), rtol=1e-11, atol=1e-11)
    G = general(shape[1], 2, dtype=dtype, seed=5)
    gradients = torch.autograd.grad(X, (M, B, damping), G)
    found = sum((g.conj() * d).sum().real for g, d in zip(gradients, directions, strict=True))
    expected = (G.conj() * difference_of_digits(ridge, inputs, directions)).sum().real
    assert abs(found - expected) < 1e-10 * (1 + expected.abs())


def solution(M, B, *damping):
    return sg.lstsq(M, B, damping=damping[0] if damping else 0.0).solution


def ordinary(dtype):
    return general(4, 3, dtype=dtype), general(4, 1, dtype=dtype, seed=1)


PROBLEMS = {
    "tall": (lambda M, B: solution(M, B), ordinary),
    "wide": (lambda M, B: solution(M.mH, B[:3]), ordinary),
    "tied": (solution, lambda dtype: (orthonormal(5, 3, dtype), general(5, 2, dtype=dtype, seed=1))),
    "rank two": (
        lambda L, R, B: solution(L @ R, B),
        lambda dtype: tuple(general(*s, dtype=dtype, seed=k) for k, s in enumerate([(5, 2), (2, 3), (5, 2)])),
    ),
    "rank two and tied": (
        lambda L, R, B: solution(L @ R, B),
        lambda dtype: (orthonormal(5, 2, dtype), orthonormal(3, 2, dtype).mH.clone(), general(5, 2, dtype=dtype)),
    ),
    "damped zero": (
        solution,
        lambda dtype: (
            torch.zeros(4, 3, dtype=dtype),
            general(4, 2, dtype=dtype),
            torch.tensor(0.4, dtype=DOUBLE),
        ),
    ),
    "some damped": (
        solution,
        lambda dtype: (
            general(2, 3, 2, dtype=dtype),
            general(3, 1, dtype=dtype),
            torch.tensor([0.5, 0.0], dtype=DOUBLE),
        ),
    ),
    "pinv of rank two": (
        lambda L, R: sg.pinv(L @ R),
        lambda dtype: (general(4, 2, dtype=dtype), general(2, 3, dtype=dtype, seed=1)),
    ),
    "hermitian": (
        lambda A, B: sg.solve_hermitian((A + A.mH) / 2, B),
        lambda dtype: (general(2, 3, 3, dtype=dtype), general(2, 3, 2, dtype=dtype, seed=1)),
    ),
    "hermitian of rank two": (
        lambda L, B: sg.solve_hermitian(L @ torch.diag(torch.tensor([1.0, -1.0], dtype=L.dtype)) @ L.mH, B),
        lambda dtype: (general(4, 2, dtype=dtype), general(4, 2, dtype=dtype, seed=1)),
    ),
}


@TYPES
@pytest.mark.parametrize("name", PROBLEMS)
def test_derivatives_agree_with_finite_differences_to_second_order(name, dtype):
    function, make = PROBLEMS[name]
    inputs = [x.clone().requires_grad_() for x in make(dtype)]
    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs)
