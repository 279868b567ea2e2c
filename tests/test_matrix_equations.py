"""solve_lyapunov and solve_sylvester: 50 digits, scipy, finite differences, ties, vanishing sums, scales, bad input."""

import builtins

import mpmath as mp
import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import library
from spectralgrad.testing import with_spectrum

from .test_least_squares import DOUBLE, TYPES, both_ways, difference_of_digits, digits_of, general, orthonormal

HERMITIAN = pytest.mark.parametrize("hermitian", [True, False], ids=["hermitian", "general"])


_JACOBIANS = torch.func.jacrev, torch.func.jacfwd


def hermitian_part(A):
    return (A + A.mH) / 2


def with_eigenvalues(values, dtype=DOUBLE, seed=0):
    Q = orthonormal(len(values), len(values), dtype, seed)
    return hermitian_part(Q * torch.tensor(values, dtype=DOUBLE) @ Q.mH)


def by_digits(A, B, C):
    """The solution of (A ⊗ I + I ⊗ Bᵀ) x = c."""
    m, n = A.rows, B.rows
    K, c = mp.zeros(m * n), mp.zeros(m * n, 1)
    for i in range(m):
        for j in range(n):
            c[i * n + j] = C[i, j]
            for k in range(m):
                K[i * n + j, k * n + j] += A[i, k]
            for k in range(n):
                K[i * n + j, i * n + k] += B[k, j]
    x = mp.lu_solve(K, c)
    return mp.matrix([[x[i * n + j] for j in range(n)] for i in range(m)])


@both_ways
@HERMITIAN
@TYPES
@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [2.0, 2.0, 2.0], [1.0, 3.0, -0.5]], ids=str)
def test_solutions_and_gradients_agree_with_fifty_digits(values, dtype, hermitian, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    A, B, C = with_eigenvalues(values, dtype), with_eigenvalues([1.0, 1.0], dtype, 1), general(3, 2, dtype=dtype)
    dA, dB = (hermitian_part(general(d, d, dtype=dtype, seed=d)) for d in (3, 2))
    if not hermitian:
        A, B = A + 0.3 * general(3, 3, dtype=dtype, seed=5).triu(1), B + general(2, 2, dtype=dtype, seed=6).triu(1)
        dA, dB = general(3, 3, dtype=dtype, seed=7), general(2, 2, dtype=dtype, seed=8)
    inputs, directions = (A, B, C), (dA, dB, general(3, 2, dtype=dtype, seed=9))
    leaves = [x.clone().requires_grad_() for x in inputs]
    X = sg.solve_sylvester(*leaves, hermitian=hermitian)
    assert_close(X.to(torch.complex128), digits_of(by_digits, *inputs), rtol=1e-12, atol=1e-12)
    G = general(3, 2, dtype=dtype, seed=10)
    gradients = torch.autograd.grad(X, leaves, G)
    found = sum((g.conj() * d).sum().real for g, d in zip(gradients, directions, strict=True))
    expected = (G.conj() * difference_of_digits(by_digits, inputs, directions)).sum().real
    assert abs(found - expected) < 1e-11 * (1 + expected.abs())


@HERMITIAN
@TYPES
def test_solutions_agree_with_scipy(dtype, hermitian):
    A, B, C = with_eigenvalues([1.0, 2.0, 3.0, -0.5], dtype), with_eigenvalues([4.0, 1.0], dtype), general(4, 2)
    if not hermitian:
        A, B = A + general(4, 4, dtype=dtype).triu(1), B + general(2, 2, dtype=dtype).triu(1)
    C, D = C.to(dtype), general(4, 4, dtype=dtype)
    X = sg.solve_sylvester(A, B, C, hermitian=hermitian)
    assert_close(X, torch.from_numpy(scipy.linalg.solve_sylvester(A.numpy(), B.numpy(), C.numpy())))
    X = sg.solve_lyapunov(A, D, hermitian=hermitian)
    assert_close(X, torch.from_numpy(scipy.linalg.solve_continuous_lyapunov(A.numpy(), D.numpy())))


def turning(S, values, C):
    """The equation of a Hermitian matrix whose eigenvectors turn and whose eigenvalues keep their sums of zero."""
    K = torch.linalg.matrix_exp(S - S.mH)
    return sg.solve_lyapunov(K @ torch.diag(values(S)) @ K.mH, C, rtol=1e-8)


PROBLEMS = {
    "sylvester": lambda A, B, C: sg.solve_sylvester(hermitian_part(A), hermitian_part(B), C),
    "sylvester of any": lambda A, B, C: sg.solve_sylvester(A, B, C, hermitian=False),
    "lyapunov": lambda A, B, C: sg.solve_lyapunov(hermitian_part(A), C @ B @ C.mH),
    "lyapunov of any": lambda A, B, C: sg.solve_lyapunov(A, C @ B @ C.mH, hermitian=False),
    "tied": lambda A, B, C: sg.solve_sylvester(
        torch.eye(3, dtype=A.dtype) + 0 * hermitian_part(A), 2 * torch.eye(2, dtype=A.dtype) + hermitian_part(B), C
    ),
    "opposite eigenvalues": lambda A, B, C: turning(
        A, lambda S: torch.stack([1 + 0 * S[0, 0], 1 + S.abs().square().sum(), -1 + 0 * S[0, 0]]), C @ B @ C.mH
    ),
    "semi-definite of rank two": lambda A, B, C: sg.solve_lyapunov(C @ C.mH, A),
}


@TYPES
@pytest.mark.parametrize("name", PROBLEMS)
def test_derivatives_agree_with_finite_differences_to_second_order(name, dtype):
    shapes = (3, 3), (2, 2), (3, 2)
    inputs = [general(*shape, dtype=dtype, seed=k).requires_grad_() for k, shape in enumerate(shapes)]
    used = inputs if name != "semi-definite of rank two" else [inputs[0], inputs[2]]
    function = PROBLEMS[name] if len(used) == 3 else lambda A, C: PROBLEMS[name](A, None, C)
    assert gradcheck(function, used, check_forward_ad=True)
    assert gradgradcheck(function, used)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_vanishing_sums_are_left_out_and_the_rest_is_solved(sign):
    A, B = with_eigenvalues([1.0, 2.0, 0.0]), with_eigenvalues([-2.0, 0.0, 5.0], seed=1) * sign
    C = general(3, 3)
    X = sg.solve_sylvester(A, B, C)
    L = torch.kron(A, torch.eye(3, dtype=DOUBLE)) + torch.kron(torch.eye(3, dtype=DOUBLE), B.mT.contiguous())
    expected = torch.from_numpy(scipy.linalg.pinv(L.numpy(), rtol=1e-12)) @ C.flatten()
    assert_close(X.reshape(-1), expected)


def test_the_tolerance_is_relative_to_both_coefficients():
    small, large = torch.zeros(1, 1, dtype=DOUBLE), torch.diag(torch.tensor([1.0, 1e-4], dtype=DOUBLE))
    for A, B in ((small, large), (large, small)):
        C = torch.ones(len(A), len(B), dtype=DOUBLE)
        assert_close(sg.solve_sylvester(A, B, C, rtol=1e-2).flatten(), torch.tensor([1.0, 0.0], dtype=DOUBLE))
        assert_close(sg.solve_sylvester(A, B, C).flatten(), torch.tensor([1.0, 1e4], dtype=DOUBLE))


def test_positive_semi_definite_coefficients_have_the_solution_of_lyapunov():
    S, G = with_spectrum([1.0, 3.0, 0.0], dtype=DOUBLE), general(3, 3)
    leaves, others = ([x.clone().requires_grad_() for x in (S, G)] for _ in range(2))
    ours, known = sg.solve_lyapunov(*leaves), sg.linalg.lyapunov(*others).solution
    assert_close(ours, known)
    H = general(3, 3, seed=2)
    assert_close(torch.autograd.grad(ours, leaves, H), torch.autograd.grad(known, others, H))


@HERMITIAN
def test_scales_batches_and_broadcasting(hermitian):
    A = torch.stack([with_eigenvalues([1.0, 2.0, s]) for s in (3.0, -0.5)])[:, None]
    B, C = with_eigenvalues([1.5, 4.0], seed=1).requires_grad_(), general(4, 3, 2)
    X = sg.solve_sylvester(A, B, C, hermitian=hermitian)
    assert X.shape == (2, 4, 3, 2)
    assert_close(A @ X + X @ B, C.expand_as(X))
    (gradient,) = torch.autograd.grad(X.sum(), B)
    parts = [
        torch.autograd.grad(sg.solve_sylvester(A[i, 0], B, C[j], hermitian=hermitian).sum(), B)[0]
        for i in range(2)
        for j in range(4)
    ]
    assert_close(gradient, sum(parts))
    for scale in (1e30, 1e-30, 1e200, 1e-200):
        assert_close(sg.solve_sylvester(scale * A, scale * B, scale * C, hermitian=hermitian), X)
    single = [x.detach().float() for x in (A, B, C)]
    for scale in (1e30, 1e-30):
        found = sg.solve_sylvester(scale * single[0], scale * single[1], single[2], hermitian=hermitian)
        assert_close(found * scale, X.detach().float())


@HERMITIAN
def test_transforms_and_compilers_agree(hermitian):
    A = torch.stack([with_eigenvalues([1.0, 2.0, s]) for s in (3.0, -1.0, 0.0)])
    if not hermitian:
        A = A[:1].expand(3, 3, 3) + 0.1 * general(3, 3, 3)
    C = general(3, 3, 3, seed=1)

    def loss(A, C):
        return sg.solve_lyapunov(A, C, hermitian=hermitian).square().sum()

    leaves = [x.clone().requires_grad_() for x in (A, C)]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    assert_close(torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(A, C), expected)
    jacobians = [of(lambda C: sg.solve_lyapunov(A, C, hermitian=hermitian))(C[0]) for of in _JACOBIANS]
    assert_close(*jacobians)
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    assert_close(torch.autograd.grad(compiled(*leaves), leaves), expected)


@HERMITIAN
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_are_computed_in_single_precision(dtype, hermitian):
    A, C = with_eigenvalues([1.0, 2.0, 3.0]).to(dtype).requires_grad_(), general(3, 3).to(dtype)
    X = sg.solve_lyapunov(A, C, hermitian=hermitian)
    assert X.dtype == dtype
    assert torch.equal(X, sg.solve_lyapunov(A.float(), C.float(), hermitian=hermitian).to(dtype))
    assert torch.autograd.grad(X.sum(), A)[0].dtype == dtype


@HERMITIAN
def test_empty_matrices_and_batches(hermitian):
    for a, b, c in (((0, 0), (2, 2), (0, 2)), ((0, 3, 3), (2, 2), (3, 2)), ((2, 2), (0, 0), (5, 2, 0))):
        X = sg.solve_sylvester(torch.zeros(a), torch.zeros(b), torch.ones(c), hermitian=hermitian)
        assert X.shape == (*torch.broadcast_shapes(a[:-2], b[:-2], c[:-2]), *c[-2:])


def test_without_scipy_the_error_says_what_to_install(monkeypatch):
    found = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("scipy"):
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"solve_lyapunov, A needs scipy .*\[large\]"):
        sg.solve_lyapunov(torch.eye(2), torch.eye(2), hermitian=False)
    assert_close(sg.solve_lyapunov(torch.eye(2), torch.eye(2)), torch.eye(2) / 2)


EYE = torch.eye(2).expand(3, 2, 2)
NAN = torch.where(torch.arange(3)[:, None, None] == 1, torch.nan, EYE)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sg.solve_lyapunov(torch.ones(2, 3), EYE), sg.ShapeError, "solve_lyapunov, A: expected square"),
        (lambda: sg.solve_lyapunov(EYE, torch.eye(3)), sg.ShapeError, r"solve_lyapunov: expected A and C \(\*, d, d\)"),
        (lambda: sg.solve_lyapunov(EYE, EYE.double()), sg.ShapeError, "same dtype .* torch.float32 and torch.float64"),
        (
            lambda: sg.solve_sylvester(EYE, torch.eye(3), EYE),
            sg.ShapeError,
            r"solve_sylvester: expected A \(\*, m, m\)",
        ),
        (lambda: sg.solve_sylvester(EYE, EYE[:2], EYE), sg.ShapeError, "batch dimensions that broadcast"),
        (lambda: sg.solve_sylvester(NAN, EYE, EYE), sg.NonFiniteError, "hermitian=True, A: .* position 1 of a batch"),
        (lambda: sg.solve_sylvester(EYE, NAN, EYE), sg.NonFiniteError, "hermitian=True, B: .* position 1 of a batch"),
        (lambda: sg.solve_sylvester(EYE, EYE, NAN), sg.NonFiniteError, "solve_sylvester, C: .* position 1 of a batch"),
        (lambda: sg.solve_lyapunov(NAN, EYE, hermitian=False), sg.NonFiniteError, "solve_lyapunov, A: .* position 1"),
        (lambda: sg.solve_lyapunov(EYE.cumsum(-1), EYE), sg.AsymmetricError, "solve_lyapunov with hermitian=True, A"),
        (lambda: sg.solve_lyapunov(EYE, EYE, rtol=-1.0), sg.ArgumentError, "solve_lyapunov: expected rtol"),
        (
            lambda: sg.solve_sylvester(EYE, (EYE - 2 * NAN.nan_to_num()), EYE, hermitian=False),
            sg.ArgumentError,
            "solve_sylvester: expected a regular equation, .* in batch position",
        ),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
