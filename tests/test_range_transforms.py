"""N16 under transforms, compilers and for second derivatives: powers of two move no derivative out of the range."""

import re

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import spectralgrad as sg
from spectralgrad.testing import with_spectrum

from .helpers import noise

SINGLE = torch.float32
# For each function of a matrix its degree p: f(2ᵉA) = 2ᵉᵖ f(A).
HOMOGENEOUS = {
    "inverse root by newton-schulz": (lambda A: sg.matrix_inv_sqrt(A, method="newton-schulz:steps=20"), -0.5),
    "inverse root by svd-newton": (lambda A: sg.matrix_inv_sqrt(A, method="svd-newton"), -0.5),
    "root by newton-schulz": (lambda A: sg.matrix_sqrt(A, method="newton-schulz"), 0.5),
    "power 2.5": (lambda A: sg.matrix_power(A, 2.5), 2.5),
    "power -1.5": (lambda A: sg.matrix_power(A, -1.5), -1.5),
    "cube": (lambda A: sg.matrix_power(A, 3), 3),
    "power 1.5 by svd": (lambda A: sg.matrix_power(A, 1.5, method="svd"), 1.5),
    "transport": (lambda A: sg.gaussian_transport(A, torch.eye(3)), -0.5),
}
ROOTS = ("newton-schulz", "newton-schulz:backward=lyapunov", "svd-newton", "mpa", "mtp", "exact")


def _matrix(name=""):
    """With a tie, except for plain SVD, which has no gradient there."""
    A = with_spectrum([2.0, 1.0, 0.6 if "by svd" in name else 1.0], seed=1).to(SINGLE)
    return (A + A.mT) / 2


def _real(X):
    return torch.view_as_real(X.resolve_conj()) if X.dtype.is_complex else X


def _agree(found, wanted, e, noise=0.0):
    """``found`` is 2ᵉ ``wanted``, which may overflow to ±inf or underflow to denormal numbers or zero.

    What is below ``noise`` times the largest entry may be a rounding error of zero, which may overflow as well.
    """
    size = wanted.abs().max().double() * 2.0**e
    true = wanted.double() * 2.0**e
    beyond = true.abs() > torch.finfo(SINGLE).max
    beyond &= (clear := wanted.abs() > noise * wanted.abs().max())
    assert not found.isnan().any()
    assert torch.equal(found[beyond].double(), true[beyond].sign() * torch.inf)
    wrong = (found.double() - true).abs() > 1e-5 * size + 4 * torch.finfo(SINGLE).tiny
    assert not bool(wrong[clear & ~beyond].any()), (found, true)


@pytest.mark.parametrize("e", [-60, -24, 24, 60])
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_derivatives_by_transforms_scale_with_the_matrix(name, e):
    f, p = HOMOGENEOUS[name]
    A, G, E = _matrix(name), noise(3, 3, dtype=SINGLE, seed=2), noise(3, 3, dtype=SINGLE, seed=3)
    E = (E + E.mT) / 2

    def loss(A):
        return (f(A) * G).sum()

    ways = {
        "vmap of grad": (lambda A: vmap(grad(loss))(A[None])[0], p - 1),
        "jacrev": (jacrev(f), p - 1),
        "jacfwd": (jacfwd(f), p - 1),
        "jvp": (lambda A: jvp(f, (A,), (E,))[1], p - 1),
        "reverse mode twice": (lambda A: grad(lambda A: (grad(loss)(A) * E).sum())(A), p - 2),
        "hessian": (hessian(loss), p - 2),
    }
    for way in ways.values():
        _agree(way[0](A * 2.0**e), way[0](A), e * way[1])


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_second_derivatives_in_eager_mode_scale_with_the_matrix(name):
    f, p = HOMOGENEOUS[name]
    G, E = noise(3, 3, dtype=SINGLE, seed=2), noise(3, 3, dtype=SINGLE, seed=3)

    def second(A):
        A = A.clone().requires_grad_()
        (g,) = torch.autograd.grad(f(A), A, G, create_graph=True)
        return torch.autograd.grad(g, A, E)[0]

    for e in (-60, 60):
        _agree(second(_matrix(name) * 2.0**e), second(_matrix(name)), e * (p - 2))


@pytest.mark.parametrize("dtype", [SINGLE, torch.complex64], ids=str)
@pytest.mark.parametrize("e", [-110, -60, 60, 110])
@pytest.mark.parametrize(("f", "degree"), [(sg.matrix_sqrt, 0.5), (sg.matrix_inv_sqrt, -0.5)], ids=["root", "inverse"])
def test_second_derivatives_of_exact_roots_overflow_to_infinity(f, degree, e, dtype, both_ways):
    A = with_spectrum([2.0, 1.0, 0.3], seed=1, dtype=dtype)
    G, E = noise(3, 3, dtype=dtype, seed=2), noise(3, 3, dtype=dtype, seed=3)
    A = (A + A.mH) / 2

    def by_reverse_mode(A):
        A = A.clone().requires_grad_()
        (g,) = torch.autograd.grad(f(A), A, G, create_graph=True)
        return _real(torch.autograd.grad(g, A, E)[0])

    def by_transforms(A):
        inner = grad(lambda A: (f(A) * G.conj()).sum().real)
        return _real(grad(lambda A: (inner(A) * E.conj()).sum().real)(A))

    for second in (by_reverse_mode, by_transforms):
        _agree(second(A * 2.0**e), second(A), e * (degree - 2), noise=1e-5)


@pytest.mark.parametrize("name", ["inverse root by newton-schulz", "power 2.5"])
def test_compiled_derivatives_scale_with_the_matrix(name):
    f = HOMOGENEOUS[name][0]
    compiled, G = torch.compile(f, backend="aot_eager"), noise(3, 3, dtype=SINGLE, seed=2)
    for e in (-60, 60):
        A = (_matrix() * 2.0**e).requires_grad_()
        _agree(torch.autograd.grad(compiled(A), A, G)[0], torch.autograd.grad(f(A), A, G)[0], 0)


@pytest.mark.parametrize("dtype", [SINGLE, torch.complex64], ids=str)
@pytest.mark.parametrize("size", [1e-26, 1e-30, 1e-36])
@pytest.mark.parametrize("method", ROOTS)
def test_gradients_of_inverse_roots_that_overflow_are_infinite_whatever_the_cotangent(method, size, dtype):
    G, B = 1e3 * noise(3, 3, dtype=dtype, seed=4), with_spectrum([2.0, 1.0, 1.0], dtype=dtype, seed=1)
    B = (B + B.mH) / 2

    def gradient(A):
        A = A.clone().requires_grad_()
        return _real(torch.autograd.grad(sg.matrix_inv_sqrt(A, method=method), A, G)[0])

    found, wanted = gradient(size * B), gradient(B).double() * size**-1.5
    clear = wanted.abs() > 1.01 * torch.finfo(SINGLE).max
    clear &= wanted.abs() > 1e-5 * wanted.abs().max()  # others are rounding errors of zero
    assert clear.any()
    assert not found.isnan().any()
    assert torch.equal(found[clear].double(), wanted[clear].sign() * torch.inf)


@pytest.mark.parametrize("dtype", [SINGLE, torch.complex64], ids=str)
@pytest.mark.parametrize("method", ["exact", "newton-schulz", "svd-newton", "mpa", "mtp"])
def test_gradients_of_roots_that_overflow_by_a_large_cotangent_are_infinite(method, dtype, both_ways):
    A, G = with_spectrum([2.0, 1.0, 0.3], seed=1, dtype=dtype), noise(3, 3, dtype=dtype, seed=4)
    A = (A + A.mH) / 2

    def gradient(A, G):
        A = A.clone().requires_grad_()
        return _real(torch.autograd.grad(sg.matrix_sqrt(A, method=method), A, G)[0])

    for size, large in ((-100, 90), (-100, 60), (-60, 100)):
        _agree(gradient(A * 2.0**size, G * 2.0**large), gradient(A, G), large - size / 2, noise=1e-5)


INVARIANT = {
    "projector": lambda A: sg.spectral_projector(A, 1),
    "polar": sg.polar,
    "polar-express": lambda A: sg.polar(A, method="polar-express"),
    "muon": lambda A: sg.polar(A, method="muon"),
}


@pytest.mark.parametrize("dtype", [SINGLE, torch.complex64], ids=str)
@pytest.mark.parametrize("name", INVARIANT)
def test_gradients_of_functions_that_do_not_change_with_the_scale_overflow_to_infinity(name, dtype, both_ways):
    f = INVARIANT[name]
    A, G = with_spectrum([2.0, 1.0, -0.3], seed=1, dtype=dtype), noise(3, 3, dtype=dtype, seed=4)
    A = (A + A.mH) / 2

    def gradient(A, G):
        A = A.clone().requires_grad_()
        return _real(torch.autograd.grad(f(A), A, G)[0])

    for size, large in ((-110, 0), (-110, 24), (-60, 70), (110, 24)):
        _agree(gradient(A * 2.0**size, G * 2.0**large), gradient(A, G), large - size, noise=1e-5)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("method", ["exact", "newton-schulz", "svd-newton", "svd-taylor", "mpa"])
def test_errors_name_the_eigenvalue_of_the_matrix_itself(method, size, both_ways):
    A = torch.diag(torch.tensor([-size, size]))
    for given in (A, A.clone().requires_grad_()):
        with pytest.raises(sg.IndefiniteError, match=re.escape(f"got eigenvalue {-size:.6g} ")):
            sg.matrix_sqrt(given, method=method)


@pytest.mark.parametrize("method", ROOTS)
@pytest.mark.parametrize("verb", [sg.matrix_sqrt, sg.matrix_inv_sqrt])
def test_rounding_to_subnormal_numbers_is_not_indefiniteness(verb, method):
    """A singular matrix of a thousand spacings of the smallest numbers has negative eigenvalues of one spacing."""
    X = torch.randn(20, 5, 2, generator=torch.Generator().manual_seed(0))
    A = X @ X.mT * 1000 * torch.finfo(torch.float32).smallest_normal * torch.finfo(torch.float32).eps
    assert float(torch.linalg.eigvalsh(A.double()).min()) < -0.1 * 2.0**-149
    leaf = A.requires_grad_()
    S = verb(leaf, method=method)
    assert not S.isnan().any()
    (g,) = torch.autograd.grad(S, leaf, torch.randn(S.shape, generator=torch.Generator().manual_seed(1)))
    assert not g.isnan().any()
