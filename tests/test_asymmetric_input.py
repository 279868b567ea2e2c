"""N15: matrix functions and distances refuse input that is asymmetric far beyond rounding; eigh does not."""

import pytest
import torch
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.native import library
from spectralgrad.optim import inverse_root, inverse_roots
from spectralgrad.precision import asymmetry_tolerance

from .helpers import in_turn

DOUBLE = torch.float64
FUNCTIONS = {
    "matrix_sqrt": sg.matrix_sqrt,
    "matrix_inv_sqrt": sg.matrix_inv_sqrt,
    "matrix_log": sg.matrix_log,
    "matrix_exp": sg.matrix_exp,
    "matrix_power": lambda A: sg.matrix_power(A, 0.3),
    "matrix_power of an integer": lambda A: sg.matrix_power(A, 3),
    "matrix_function": lambda A: sg.matrix_function(A, torch.tanh),
    "spectral_projector": lambda A: sg.spectral_projector(A, 1),
    "svd-pade": lambda A: sg.matrix_sqrt(A, method="svd-pade"),
    "svd-taylor": lambda A: sg.matrix_sqrt(A, method="svd-taylor"),
    "newton-schulz": lambda A: sg.matrix_sqrt(A, method="newton-schulz"),
    "svd-newton": lambda A: sg.matrix_inv_sqrt(A, method="svd-newton"),
    "inverse_root": lambda A: inverse_root(A, 4),
    "inverse_root, eps": lambda A: inverse_root(A, 4, eps=0.1, rtol=0.0),
    "bures_wasserstein": lambda A: sg.bures_wasserstein(torch.eye(A.shape[-1], dtype=A.dtype), A),
    "gaussian_transport": lambda A: sg.gaussian_transport(A, torch.eye(A.shape[-1], dtype=A.dtype)),
    "log_euclidean": lambda A: sg.log_euclidean(A, torch.eye(A.shape[-1], dtype=A.dtype)),
    "affine_invariant": lambda A: sg.affine_invariant(torch.eye(A.shape[-1], dtype=A.dtype), A),
    "newton_schulz": lambda A: sg.linalg.newton_schulz(A)[0],
    "lyapunov": lambda A: sg.linalg.lyapunov(A, torch.eye(A.shape[-1], dtype=A.dtype)).solution,
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)
both_ways = pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "torch"])


def positive(d, dtype=DOUBLE, batch=(), seed=0):
    """Random positive definite matrices with eigenvalues from 1 to about 3, exactly Hermitian."""
    B = torch.randn(*batch, d, d, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    B = B @ B.mH / d
    return torch.eye(d, dtype=dtype) + (B + B.mH) / 4


def skewed(A, ratio, i, j):
    """Change one entry such that the relative asymmetry of each matrix is ``ratio``."""
    B = A.clone()
    B[..., i, j] += ratio * A.abs().amax((-2, -1))
    return B


@both_ways
@every_function
def test_n15_asymmetric_matrices_are_refused_and_the_hermitian_part_is_not(name, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    A = positive(4, batch=(2, 3))
    A[1, 2, 0, 3] += 0.5 * A[1, 2].max()
    with pytest.raises(sg.AsymmetricError, match=r"symmetric .* of 0\.5 in batch position \(1, 2\)") as caught:
        FUNCTIONS[name](A)
    assert caught.value.position == (1, 2)
    assert caught.value.tolerance == asymmetry_tolerance(DOUBLE) == 2.0**-13
    assert isinstance(caught.value, (ValueError, torch.linalg.LinAlgError))
    assert torch.isfinite(FUNCTIONS[name]((A + A.mH) / 2)).all()


@both_ways
@in_turn(
    "d",
    [2, 3, 4, 5, 8, 17, 33, 70],
    batch=[(), (19,)],
    dtype=[torch.float32, DOUBLE, torch.complex64, torch.complex128],
)
def test_n15_both_sides_of_the_limit_at_every_place(dtype, d, batch, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    A, limit = positive(d, dtype, batch), asymmetry_tolerance(dtype)
    for i, j in {(0, 1), (0, d - 1), (d - 2, d - 1), (d - 1, 0), (d // 2 - 1, d // 2)}:
        for f in (sg.matrix_sqrt, sg.matrix_log):
            f(skewed(A, 0.98 * limit, i, j))
            with pytest.raises(sg.AsymmetricError, match="relative asymmetry"):
                f(skewed(A, 1.02 * limit, i, j))


@both_ways
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_n15_complex_matrices_with_complex_diagonal_or_symmetric_instead_of_hermitian(dtype, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    A = positive(5, dtype)
    for B in (A + 0.2j * torch.eye(5, dtype=dtype), A.tril() + A.tril(-1).mT):
        with pytest.raises(sg.AsymmetricError):
            sg.matrix_exp(B)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@every_function
def test_n15_the_limit_follows_the_type_of_the_input(name, dtype):
    limit = asymmetry_tolerance(dtype)
    A = positive(3, torch.float32).to(dtype)
    FUNCTIONS[name](skewed(A, 0.8 * limit, 0, 2).float().to(dtype))
    with pytest.raises(sg.AsymmetricError):
        FUNCTIONS[name](skewed(A, 1.3 * limit, 0, 2))


@every_function
def test_n15_the_message_for_a_random_matrix_is_about_asymmetry(name):
    for seed in range(5):
        A = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed))
        with pytest.raises(sg.AsymmetricError):
            FUNCTIONS[name](A)


@in_turn("name", FUNCTIONS, kernel=[True, False])
def test_n15_transforms_and_compilers_refuse_as_well(name, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    torch._dynamo.reset()
    A = positive(3, batch=(2,))
    A[1, 0, 2] += 1
    f = FUNCTIONS[name]
    with pytest.raises(sg.AsymmetricError, match=r"batch position \(1,\)"):
        torch.func.vmap(f)(A)
    with pytest.raises(sg.AsymmetricError):
        torch.compile(f, backend="aot_eager", fullgraph=True)(A)
    if "inverse_root" not in name:
        with pytest.raises(sg.AsymmetricError):
            torch.func.grad(lambda X: f(X).sum())(A)


@both_ways
@pytest.mark.parametrize("scale", [2.0**-1060, 2.0**-1000, 2.0**1000])
def test_n15_asymmetry_is_relative_at_every_scale(scale, kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    for d in (3, 9):
        A = positive(d, batch=(3,))
        sg.matrix_sqrt(skewed(A, 1e-5, 0, d - 1) * scale)
        if scale > 2.0**-1022:
            with pytest.raises(sg.AsymmetricError):
                sg.matrix_sqrt(skewed(A, 0.1, 0, d - 1) * scale)


@both_ways
def test_n15_infinite_entries_of_the_upper_triangle_are_named(kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    for d in (3, 9):
        for junk in (float("nan"), float("inf")):
            A = positive(d, batch=(3,))
            A[2, 0, d - 1] = junk
            with pytest.raises(sg.NonFiniteError, match="position 2 of"):
                sg.matrix_sqrt(A)


@both_ways
def test_n15_decompositions_read_the_lower_triangle(kernel, monkeypatch):
    monkeypatch.setattr(library, "switched_off", not kernel)
    for d in (3, 9):
        A = positive(d, batch=(3,))
        B = A + torch.full_like(A, float("nan")).triu(1)
        assert_close(sg.eigh(B)[0], sg.eigh(A)[0])
        assert_close(sg.eigvalsh(B), sg.eigvalsh(A))


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_n15_rounding_of_a_computed_congruence_is_accepted(dtype):
    """M A Mᵀ = I to rounding, for M = A^(−1/2) and A with condition 1e4: its asymmetry is about ε · 1e4."""
    for seed in range(20):
        Q = torch.linalg.qr(torch.randn(16, 16, dtype=dtype, generator=torch.Generator().manual_seed(seed))).Q
        w = torch.logspace(0, 4, 16, dtype=dtype)
        M = (Q * w.rsqrt()) @ Q.mT @ torch.linalg.qr(torch.randn(16, 16, dtype=dtype)).Q.mT
        C = M.mT @ ((Q * w) @ Q.mT) @ M
        sg.matrix_log(C)
        sg.matrix_sqrt(C)


def test_n15_finite_differences_of_single_entries_are_accepted():
    A = positive(3).requires_grad_()
    for f in (sg.matrix_sqrt, sg.matrix_log, lambda X: sg.affine_invariant(X, torch.eye(3, dtype=DOUBLE))):
        assert torch.autograd.gradcheck(lambda X, f=f: f(X.tril() + X.tril(-1).mT), A)
        g = torch.autograd.grad(f(A).sum(), A)[0]
        h = 1e-5
        for i, j in ((1, 1), (2, 0)):  # only the lower triangle is read, and the gradient is shared between both
            E = torch.zeros(3, 3, dtype=DOUBLE)
            E[i, j] = h
            slope = (f(A + E).sum() - f(A - E).sum()) / (2 * h)
            assert_close(slope, g[i, j] * (1 if i == j else 2), rtol=1e-6, atol=1e-8)


def test_n15_positions_in_a_list_of_matrices():
    matrices = [torch.eye(2), torch.eye(3), torch.tensor([[1.0, 0.9], [0.0, 1.0]])]
    with pytest.raises(sg.AsymmetricError, match=r"inverse_roots: .* of 0\.9 in batch position \(2,\)"):
        inverse_roots(matrices, 4)


def test_n15_inspect_reports_asymmetry():
    report = sg.diagnostics.inspect(torch.tensor([[2.0, 5.0], [0.0, 2.0]]))
    assert report.asymmetry > 1
    assert torch.isfinite(report.gradient_error)


def test_n15_replaced_functions_of_torch_read_what_torch_reads():
    A = positive(3)
    lower = A.tril()
    expected = torch.linalg.pinv(A, hermitian=True)
    with sg.override_linalg():
        assert_close(torch.linalg.pinv(lower, hermitian=True), expected)
