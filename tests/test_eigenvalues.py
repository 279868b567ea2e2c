"""eigvalsh and svdvals: values, exact gradients at ties, transforms, types and bad input."""

from itertools import product

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.autograd.eigen import values as eigenvalues
from spectralgrad.autograd.singular import values as singular_values
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import DOUBLES, DTYPES, SPECTRA, gradient, in_turn, matrix, symmetric_noise, symmetrized, unit

VALUES = {"eigvalsh": sg.eigvalsh, "svdvals": sg.svdvals}
VECTORS = {"eigvalsh": lambda A: sg.eigh(A).eigenvalues, "svdvals": lambda A: sg.svd(A).S}
SPREAD = [0.4, 0.9, 1.7, 2.5]
SYMMETRIC = {
    "sum": lambda x: x.sum(-1),
    "squares": lambda x: x.square().sum(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "product": lambda x: (1 + x).prod(-1),
}


@in_turn("name, spectrum", product(VALUES, SPECTRA), dtype=DTYPES)
def test_values_are_those_of_the_decomposition(name, spectrum, dtype):
    """With and without a gradient, which take different ways through the solvers; LAPACK's bound is 30 n u ‖A‖."""
    A = matrix(spectrum, dtype)
    w = VALUES[name](A)
    for expected in (VECTORS[name](A), VALUES[name](A.clone().requires_grad_()).detach()):
        assert w.dtype == expected.dtype == dtype.to_real()
        assert (w - expected).abs().max() <= 30 * 6 * unit(dtype) * w.abs().max()


@pytest.mark.parametrize("name", VALUES)
def test_no_vectors_are_computed_without_a_gradient(name, monkeypatch):
    module = {"eigvalsh": eigenvalues, "svdvals": singular_values}[name]
    monkeypatch.setattr(module, "values", None)  # calling it would raise a TypeError
    A = torch.stack([matrix("spread")] * 8).requires_grad_()
    with torch.no_grad():
        VALUES[name](A)
    with pytest.raises(TypeError):
        VALUES[name](A)


@in_turn("function, spectrum", product(["sum", "squares", "logsumexp"], SPECTRA), dtype=DTYPES)
def test_symmetric_functions_have_their_gradient_at_any_spectrum(function, spectrum, dtype):
    """It is f'(A) for the sum of f(λ): I, 2A, and exp(A) divided by its trace."""
    A = matrix(spectrum, dtype)
    A = (A + A.mH) / 2
    exponential = torch.linalg.matrix_exp(A)
    expected = {
        "sum": torch.eye(6, dtype=dtype),
        "squares": 2 * A,
        "logsumexp": exponential / exponential.diagonal().sum(),
    }[function]
    g = gradient(lambda X: SYMMETRIC[function](sg.eigvalsh(X)), A, torch.ones(()))
    assert (g - expected).abs().max() <= 1e3 * unit(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spectrum", ["spread", "tie", "near-tie", "identity", "clustered"])
def test_the_nuclear_norm_has_the_polar_factor_as_gradient(spectrum, dtype):
    """Where no singular value is zero to rounding; there it has a kink."""
    M = matrix(spectrum, dtype)
    g = gradient(lambda X: sg.svdvals(X).sum(), M, torch.ones(()))
    assert (g - sg.polar(M)).abs().max() <= 1e3 * unit(dtype)


@in_turn("name, spectrum", product(VALUES, SPECTRA), dtype=DTYPES)
def test_gradients_of_single_values_are_finite_and_of_norm_one(name, spectrum, dtype):
    A = matrix(spectrum, dtype)
    for i in range(6):
        g = gradient(lambda X, i=i: VALUES[name](X)[i], A, torch.ones(()))
        assert abs(float(torch.linalg.matrix_norm(g)) - 1) < 100 * unit(dtype)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_first_and_second_derivatives_in_both_modes(name, dtype):
    A = torch.stack([with_spectrum(SPREAD, dtype=dtype, seed=s) for s in (0, 1)]).requires_grad_()
    f = symmetrized(VALUES[name])
    assert gradcheck(f, (A,), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, (A,), check_fwd_over_rev=True)
    if name == "svdvals":
        M = A.detach()[..., :3].clone().requires_grad_()
        assert gradcheck(f := sg.svdvals, (M,), check_forward_ad=True)
        assert gradgradcheck(f, (M,))


@pytest.mark.parametrize("name", VALUES)
def test_transforms_agree(name):
    loss = lambda A: (VALUES[name](A) * torch.arange(1.0, 5)).square().sum()  # noqa: E731
    batch = torch.stack([with_spectrum(SPREAD, seed=s) for s in range(3)])
    expected = torch.stack([grad(loss)(A) for A in batch])
    assert_close(vmap(grad(loss))(batch), expected)
    assert_close(vmap(VALUES[name], in_dims=2)(batch.movedim(0, 2)), VALUES[name](batch))
    assert_close(jacfwd(loss)(batch[0]), expected[0])
    assert_close(jvp(loss, (batch[0],), (torch.eye(4).double(),))[1], expected[0].diagonal().sum())
    assert_close(hessian(loss)(batch[0]), jacrev(jacrev(loss))(batch[0]))


@pytest.mark.parametrize("name", VALUES)
def test_compiled_equals_eager(name):
    torch._dynamo.reset()
    A, loss = with_spectrum(SPREAD).requires_grad_(), lambda X: (VALUES[name](X) * torch.arange(4.0)).sum()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert_close(compiled(A), loss(A))
    assert_close(*(torch.autograd.grad(f(A), A)[0] for f in (compiled, loss)))
    assert_close(compiled(A.detach()), loss(A.detach()))


@pytest.mark.parametrize("name", VALUES)
def test_scale_and_neighbours_have_no_influence(name):
    f, H = VALUES[name], symmetric_noise(6)[0]
    A = matrix("tie")
    for c in (2.0**498, 2.0**-498):
        assert relative_error(f(A * c) / c, f(A)) < 100 * unit(A.dtype)
        assert relative_error(gradient(f, matrix("spread") * c, H), gradient(f, matrix("spread"), H)) < 1e-12
    for g in (f, lambda X: gradient(f, X, H)):
        assert torch.equal(*(g(torch.stack([A, *(matrix(s, seed=seed) for s in SPECTRA)]))[0] for seed in (1, 2)))


@pytest.mark.parametrize("name", VALUES)
def test_types_shapes_and_bad_input(name):
    f = VALUES[name]
    for dtype in (torch.float16, torch.bfloat16):
        A = matrix("tie", torch.float32).to(dtype)
        assert f(A).dtype == gradient(f, A, torch.ones(6)).dtype == dtype
        assert_close(f(A), f(A.float()).to(dtype))
    A = matrix("spread", torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(f(A.clone().requires_grad_()), f(A), rtol=1e-6, atol=1e-6)
    for shape in ((0, 3, 3), (2, 0, 0), (2, 1, 1), (0, 0)):
        X = torch.ones(shape, requires_grad=True)
        assert f(X).shape == f(X.detach()).shape == shape[:-1]
        f(X).sum().backward()
        assert_close(X.grad, torch.ones(shape))
    assert_close(f(A.expand(2, 6, 6).mT), f(A).expand(2, 6))
    bad = torch.eye(3).repeat(4, 1, 1)
    bad[2, 1, 0] = torch.nan
    for X in (bad, bad.clone().requires_grad_()):
        with pytest.raises(sg.NonFiniteError, match=f"{name}: expected finite input.*position 2"):
            f(X)
    with pytest.raises(sg.ShapeError, match=f"{name}: expected"):
        f(torch.ones(3, dtype=torch.int64))


def test_eigvalsh_reads_the_lower_triangle_and_wants_square_matrices():
    A = matrix("spread", torch.complex128)
    assert_close(sg.eigvalsh(A + torch.triu(torch.full_like(A, 7.0), 1)), sg.eigvalsh(A))
    with pytest.raises(sg.ShapeError, match=r"eigvalsh: expected square matrices.*\(2, 3\)"):
        sg.eigvalsh(torch.ones(2, 3))
