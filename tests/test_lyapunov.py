"""linalg.lyapunov: exact solutions and derivatives, at ties, for complex and singular coefficients; bad input."""

import mpmath as mp
import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.linalg import lyapunov
from spectralgrad.native import library
from spectralgrad.testing import with_spectrum

DOUBLE = torch.float64
both_ways = pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "torch"])


def general(*shape, dtype=DOUBLE, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def by_digits(S, G):
    """The solution of the linear system (S ⊗ I + I ⊗ Sᵀ) x = g in 40 digits."""
    d = len(S)
    with mp.workdps(40):
        s, g = mp.matrix(S.tolist()), mp.matrix(G.flatten().tolist())
        K = mp.zeros(d * d)
        for i in range(d):
            for j in range(d):
                for k in range(d):
                    K[i * d + j, k * d + j] += s[i, k]
                    K[i * d + j, i * d + k] += s[k, j]
        x = mp.lu_solve(K, g)
        return torch.tensor([complex(v) for v in x], dtype=torch.complex128).reshape(d, d)


@both_ways
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE, torch.complex128], ids=str)
@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
def test_solutions_agree_with_forty_digits(condition, dtype, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    real = dtype.to_real() if dtype.is_complex else dtype
    w = torch.logspace(0, -1, 4, base=condition, dtype=DOUBLE).to(real)
    Q = torch.linalg.qr(general(4, 4, dtype=dtype)).Q
    S = (Q * w) @ Q.mH
    S, G = (S + S.mH) / 2, general(4, 4, dtype=dtype, seed=1)
    X, residual = lyapunov(S, G)
    expected = by_digits(S, G)
    error = torch.linalg.matrix_norm(X - expected) / torch.linalg.matrix_norm(expected)
    unit = torch.finfo(dtype).eps / 2
    assert float(error) < 100 * unit * condition
    assert float(residual) < 100 * unit * condition


def test_the_example_of_condition_ten_thousand():
    X = lyapunov(torch.diag(torch.tensor([1.0, 1e-4])), torch.ones(2, 2)).solution
    assert_close(X[1, 1], torch.tensor(5000.0))


@both_ways
@pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128], ids=str)
@pytest.mark.parametrize("spectrum", [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1e-2]], ids=str)
def test_derivatives_are_exact_to_second_order_and_at_ties(spectrum, dtype, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    Q = torch.linalg.qr(general(3, 3, dtype=dtype)).Q
    S = ((Q * torch.tensor(spectrum, dtype=DOUBLE)) @ Q.mH).requires_grad_()
    G = general(3, 3, dtype=dtype, seed=1).requires_grad_()

    def solution(S, G):
        return lyapunov((S + S.mH) / 2, G).solution

    assert torch.autograd.gradcheck(solution, (S, G), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(solution, (S, G))


@pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128], ids=str)
def test_derivatives_of_singular_coefficients_within_their_rank(dtype):
    B = general(4, 2, dtype=dtype).requires_grad_()
    G = general(4, 4, dtype=dtype, seed=1).requires_grad_()

    def solution(B, G):
        return lyapunov(B @ B.mH, G).solution

    assert torch.autograd.gradcheck(solution, (B, G), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(solution, (B, G))


def test_the_residual_shows_what_a_singular_coefficient_leaves_out():
    S = torch.diag(torch.tensor([2.0, 0.0, 0.0], dtype=DOUBLE))
    G = torch.ones(3, 3, dtype=DOUBLE)
    X, residual = lyapunov(S, G)
    assert_close(X, torch.tensor([[0.25, 0.5, 0.5], [0.5, 0, 0], [0.5, 0, 0]], dtype=DOUBLE))
    assert_close(residual, torch.tensor(2 / 3, dtype=DOUBLE))  # four of nine entries
    assert not residual.requires_grad


def test_the_gradient_of_the_coefficient_is_hermitian():
    S = with_spectrum([1.0, 2.0, 5.0]).requires_grad_()
    (g,) = torch.autograd.grad((lyapunov(S, general(3, 3)).solution * general(3, 3, seed=1)).sum(), S)
    assert_close(g, g.mT)


def test_batches_broadcast_and_transforms_agree():
    S, G = torch.stack([with_spectrum([1.0, 2.0, 5.0], seed=k) for k in range(2)])[:, None], general(4, 3, 3)
    X = lyapunov(S, G).solution
    assert X.shape == (2, 4, 3, 3)
    assert_close(S @ X + X @ S, G.expand_as(X))
    each = torch.func.vmap(lambda s: torch.func.vmap(lambda g: lyapunov(s, g).solution)(G))(S[:, 0])
    assert_close(each, X)
    torch._dynamo.reset()
    assert_close(torch.compile(lyapunov, backend="aot_eager", fullgraph=True)(S, G).solution, X)


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**-500, 2.0**500, 2.0**1000])
def test_solutions_at_every_scale(scale):
    S, G = with_spectrum([1.0, 2.0, 5.0]), general(3, 3)
    X = lyapunov(S, G).solution
    assert_close(lyapunov(S * scale, G * scale).solution, X)
    if abs(torch.tensor(scale, dtype=DOUBLE).log2()) < 1000:
        assert_close(lyapunov(S * scale, G).solution * scale, X)
        assert_close(lyapunov(S, G * scale).solution / scale, X)
    overflow = lyapunov(S * 2.0**-1000, G * 2.0**1000).solution
    assert not overflow.isnan().any()


def test_half_types_are_computed_in_single_precision():
    S, G = with_spectrum([1.0, 2.0, 5.0]).bfloat16(), general(3, 3).bfloat16()
    X = lyapunov(S, G).solution
    assert X.dtype == torch.bfloat16
    assert torch.equal(X, lyapunov(S.float(), G.float()).solution.bfloat16())


@pytest.mark.parametrize(
    ("S", "G", "error", "words"),
    [
        ("x", torch.eye(2), sg.ShapeError, "lyapunov: expected S to be .*, got 'x'"),
        (torch.eye(2), None, sg.ShapeError, "lyapunov: expected G to be .*, got None"),
        (torch.ones(2, 3), torch.eye(2), sg.ShapeError, "lyapunov, S: expected square matrices"),
        (torch.eye(2), torch.eye(3), sg.ShapeError, "lyapunov: expected S and G"),
        (torch.eye(2), torch.eye(2, dtype=DOUBLE), sg.ShapeError, "lyapunov: expected S and G of the same dtype"),
        (torch.eye(2) * torch.nan, torch.eye(2), sg.NonFiniteError, "lyapunov: expected finite input"),
        (torch.eye(2), torch.eye(2) * torch.inf, sg.NonFiniteError, "lyapunov, G: expected finite"),
        (-torch.eye(2), torch.eye(2), sg.IndefiniteError, "lyapunov: expected a positive semi-definite matrix"),
        (torch.eye(2).cumsum(0), torch.eye(2), sg.AsymmetricError, "lyapunov: expected a symmetric"),
    ],
)
def test_bad_input(S, G, error, words):
    with pytest.raises(error, match=words):
        lyapunov(S, G)
    with pytest.raises(sg.ArgumentError, match="lyapunov: expected rtol"):
        lyapunov(torch.eye(2), torch.eye(2), rtol=2.0)
