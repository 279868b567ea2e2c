"""The generalised problem: eigh(A, B) and eigvalsh(A, B)."""

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import DOUBLES, DTYPES, SPECTRA, matrix, symmetric_noise, symmetrized, unit

METRIC = [0.5, 0.8, 1.0, 1.0, 2.0, 3.0]
NOT_GAP_RULES = ["pi", "svd-newton"]


def _metric(dtype=torch.float64, seed=7, spectrum=METRIC):
    return with_spectrum(spectrum, dtype=dtype, seed=seed)


def _both(f, A, B):
    A, B = (x.detach().clone().requires_grad_() for x in (A, B))
    return torch.autograd.grad(f(A, B), (A, B))


WEIGHTS = torch.arange(36, dtype=torch.float64).cos().reshape(6, 6)


def _leading(w, X, k=2):
    """A loss that does not depend on signs or phases: a weighted projector, and the eigenvalues."""
    P = X[..., -k:] @ X[..., -k:].mH
    return (P * WEIGHTS[: X.shape[-2], : X.shape[-2]]).sum().real + w[..., -k:].square().sum()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_residual_and_orthonormality(spectrum, dtype):
    A, B = matrix(spectrum, dtype), _metric(dtype)
    w, X = sg.eigh(A, B)
    size = 30 * 6 * unit(dtype) * 6  # LAPACK's threshold times the condition number of B
    assert (A @ X - B @ X * w).abs().max() <= size * max(1, float(A.abs().max()))
    assert (X.mH @ B @ X - torch.eye(6)).abs().max() <= size
    assert (sg.eigvalsh(A, B) - w).abs().max() <= size
    assert bool((w.diff() >= 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("condition", [1e2, 5e3, 1e6])
def test_an_ill_conditioned_metric_against_fifty_digits(condition, dtype, both_ways):
    """Errors relative to the largest eigenvalue. Single precision computes in double there and loses nothing."""
    A = with_spectrum([1.0, 2.0, 3.0, 4.0], dtype=dtype, seed=1)
    B = with_spectrum([1 / condition, 0.3, 0.5, 1.0], dtype=dtype, seed=2)
    with mpmath.workdps(50):
        exact = [mpmath.matrix((M.tril() + M.tril(-1).mT).tolist()) for M in (A, B)]
        L = mpmath.cholesky(exact[1]) ** -1
        expected = torch.tensor(
            sorted(map(float, mpmath.eigsy(L * exact[0] * L.T, eigvals_only=True))), dtype=torch.float64
        )
    error = (sg.eigvalsh(A, B).double() - expected).abs().max() / expected[-1]
    assert error <= 100 * unit(dtype) * (1 if dtype == torch.float32 else condition)


def test_badly_scaled_variables_cost_no_accuracy():
    """(DAD, DBD) has the eigenvalues of (A, B), and D alone has condition number 1e60."""
    A, B = matrix("spread"), _metric()
    D = 2.0 ** torch.tensor([-100, 0, 100, 50, -50, 7], dtype=torch.float64)
    scaled = [x * D[:, None] * D for x in (A, B)]
    assert relative_error(sg.eigvalsh(*scaled), sg.eigvalsh(A, B)) < 1e3 * unit(A.dtype)
    g, expected = _both(lambda A, B: sg.eigvalsh(A, B)[1], *scaled), _both(lambda A, B: sg.eigvalsh(A, B)[1], A, B)
    for x, y in zip(g, expected, strict=True):
        assert relative_error(x * D[:, None] * D, y) < 1e3 * unit(A.dtype)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_first_and_second_derivatives_in_both_modes(dtype):
    A, B = with_spectrum([0.4, 0.9, 1.7, -2.5], dtype=dtype), _metric(dtype, spectrum=METRIC[1:5])
    for f in (lambda A, B: sg.eigvalsh(A, B), lambda A, B: _leading(*sg.eigh(A, B))):
        g = lambda A, B, f=f: f((A + A.mH) / 2, (B + B.mH) / 2)  # noqa: E731
        inputs = [x.clone().requires_grad_() for x in (A, B)]
        assert gradcheck(g, inputs, check_forward_ad=True)
        assert gradgradcheck(g, inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_gradients_are_finite_and_those_of_the_ordinary_problem_at_the_identity(spectrum, dtype):
    A, H = matrix(spectrum, dtype), symmetric_noise(6, dtype)
    loss = lambda w, X: (X * H).sum().abs() + (w * torch.arange(6)).sum()  # noqa: E731
    gA, gB = _both(lambda A, B: loss(*sg.eigh(A, B)), A, torch.eye(6, dtype=dtype))
    assert bool(gA.isfinite().all())
    assert bool(gB.isfinite().all())
    if spectrum == "spread":
        (expected,) = torch.autograd.grad(loss(*sg.eigh(leaf := A.clone().requires_grad_())), leaf)
        assert relative_error(gA, expected) < 1e4 * unit(dtype)


def test_a_tie_has_its_exact_gradient():
    """A = B: every eigenvalue is one, and the trace of B⁻¹A has the gradients B⁻¹ and −B⁻¹."""
    B = _metric()
    gA, gB = _both(lambda A, B: sg.eigvalsh(A, B).sum(), B, B)
    inverse = torch.linalg.inv(B)
    assert relative_error(gA, inverse) < 1e3 * unit(B.dtype)
    assert relative_error(gB, -inverse) < 1e3 * unit(B.dtype)


def test_transforms_and_compile_agree():
    A = torch.stack([with_spectrum([0.4, 0.9, 1.7, -2.5], seed=s) for s in range(3)])
    B = _metric(spectrum=METRIC[1:5])
    loss = lambda A, B: _leading(*sg.eigh(A, B))  # noqa: E731
    expected = [grad(loss, (0, 1))(X, B) for X in A]
    for x, y in zip(vmap(grad(loss, (0, 1)), (0, None))(A, B), zip(*expected, strict=True), strict=True):
        assert_close(x, torch.stack(y))
    for i in (0, 1):
        assert_close(jacfwd(loss, i)(A[0], B), expected[0][i])
        assert_close(hessian(loss, i)(A[0], B), jacrev(jacrev(loss, i), i)(A[0], B))
    torch._dynamo.reset()
    for x, y in zip(_both(torch.compile(loss, fullgraph=True, backend="aot_eager"), A[0], B), expected[0], strict=True):
        assert_close(x, y)


def test_batches_broadcast_and_do_not_depend_on_neighbours():
    steep = with_spectrum([1e-6, 0.1, 0.2, 0.5, 0.7, 1.0], dtype=torch.float32)  # reduced in double precision
    A, B = matrix("spread", torch.float32), _metric(torch.float32)
    for first, other in ((B, steep), (steep, B)):
        results = [
            (*sg.eigh(A, Bs), *_both(lambda A, B: _leading(*sg.eigh(A, B)), A, Bs)[1:])
            for Bs in (torch.stack([first, first]), torch.stack([first, other]))
        ]
        assert all(torch.equal(x[0], y[0]) for x, y in zip(*results, strict=True))
    assert sg.eigh(A, B.expand(0, 6, 6)).eigenvectors.shape == (0, 6, 6)
    assert sg.eigvalsh(torch.ones(2, 0, 0), torch.ones(2, 0, 0)).shape == (2, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_return_their_own_type(dtype):
    A, B = matrix("spread", torch.float32).to(dtype), _metric(torch.float32).to(dtype)
    w, X = sg.eigh(A, B)
    assert w.dtype == X.dtype == sg.eigvalsh(A, B).dtype == dtype
    assert_close(w, sg.eigh(A.float(), B.float()).eigenvalues.to(dtype))


def test_bad_input_is_refused():
    A, B = matrix("spread").expand(3, 6, 6), _metric().repeat(3, 1, 1)
    B[1] = with_spectrum([-0.1, 1, 1, 1, 1, 1])
    for f in (sg.eigh, sg.eigvalsh):
        with pytest.raises(sg.NotDefiniteError, match=r"positive definite B, got eigenvalues from -0\.1 to 1 .*\(1,\)"):
            f(A, B)
        for singular in (torch.ones(6, 6), torch.zeros(6, 6), -torch.eye(6)):
            for dtype in DTYPES:
                with pytest.raises(sg.NotDefiniteError, match="singular to rounding"):
                    f(matrix("spread", dtype), singular.to(dtype))
        with pytest.raises(sg.ShapeError, match="expected B of the size and dtype"):
            f(A, B[:, :3, :3])
        with pytest.raises(sg.ShapeError, match="to broadcast against the batch"):
            f(A, B[:2])
    for bad, name in ((0, "eigh: expected finite"), (1, "eigh, B: expected finite")):
        pair = [A.clone(), _metric().repeat(3, 1, 1)]
        pair[bad][2, 1, 0] = torch.inf
        with pytest.raises(sg.NonFiniteError, match=f"{name}.*position 2"):
            sg.eigh(*pair)


@pytest.mark.parametrize("method", [m for m in sg.methods("eigh") if m not in NOT_GAP_RULES])
def test_every_gap_rule_serves(method):
    A, B = matrix("spread"), _metric()
    g = _both(lambda A, B: _leading(*sg.eigh(A, B, method=method)), A, B)
    assert all(bool(x.isfinite().all()) for x in g)


def test_other_methods_say_so():
    with pytest.raises(sg.MethodError, match="'pi' is not available for eigh with B"):
        sg.eigh(torch.eye(2), torch.eye(2), method="pi")


def test_the_lower_triangles_are_read():
    A, B = matrix("spread", torch.complex128), _metric(torch.complex128)
    junk = torch.triu(torch.full_like(A, 7.0), 1)
    assert_close(sg.eigvalsh(A + junk, B + junk), sg.eigvalsh(A, B))
    f = symmetrized(lambda B: sg.eigvalsh(A, B).sum())
    assert_close(*(lambda g: (g, g.mH))(torch.autograd.grad(f(leaf := B.clone().requires_grad_()), leaf)[0]))
