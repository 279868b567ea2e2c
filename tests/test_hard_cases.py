"""Cases on which an earlier version of this library was wrong, found by people who tried to break it."""

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, jvp
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from .helpers import BACKEND, FUNCTIONS, gradient, symmetric_noise, unit

DOUBLE = torch.float64
SPREAD = [0.4, 0.9, 1.7, 2.5]


VERBS = [*FUNCTIONS.values(), sg.polar, lambda X: sg.eigh(X).eigenvectors, lambda X: sg.svd(X).U]
ITERATIONS = [
    sg.NewtonSchulz(steps=20, normalize=normalize, backward=backward)
    for normalize in ("trace", "frobenius")
    for backward in ("unrolled", "lyapunov")
]
LEARNED = [lambda X: sg.covariance_sqrt(X, eps=1e-3), lambda X: sg.matrix_function(X.mT @ X, torch.tanh)]


@pytest.mark.parametrize("verb", VERBS)
def test_forward_over_forward_is_refused_rather_than_wrong(verb):
    A = with_spectrum(SPREAD)
    with pytest.raises(NotImplementedError, match="forward mode over forward mode"):
        jacfwd(jacfwd(lambda X: verb(X).sum()))(A)


def _block_second_derivative(f, B, E):
    """d²f(B + tE)/dt² from the upper right corner of f of a block triangular matrix."""
    n = B.shape[-1]
    Z = torch.zeros_like(B)
    M = torch.cat([torch.cat([B, E, Z], 1), torch.cat([Z, B, E], 1), torch.cat([Z, Z, B], 1)], 0)
    return 2 * f(M)[:n, 2 * n :]


@pytest.mark.parametrize(
    "B",
    [
        torch.ones(3, 3, dtype=DOUBLE),
        torch.diag(torch.tensor([1e-9, -1e-9, 1.0], dtype=DOUBLE)),
        torch.diag(torch.tensor([1e-17, -1e-17, 2.0], dtype=DOUBLE)),
        with_spectrum([0.0, 0.0, 1.3], seed=3),
    ],
    ids=["ones", "straddling", "noise", "rank-one"],
)
@pytest.mark.parametrize("f", [sg.matrix_exp, lambda X: sg.matrix_function(X, torch.exp)], ids=["exp", "function"])
def test_exponential_near_zero_eigenvalues_to_second_order(f, B):
    E, G = symmetric_noise(3, seed=4), symmetric_noise(3, seed=5)
    loss = lambda t: (f(B + t * E) * G).sum()  # noqa: E731
    zero = torch.zeros((), dtype=DOUBLE)
    expected = (_block_second_derivative(torch.linalg.matrix_exp, B, E) * G).sum()
    assert_close(grad(grad(loss))(zero), expected, rtol=1e-7, atol=1e-7)
    first = (torch.linalg.matrix_exp(torch.cat([torch.cat([B, E], 1), torch.cat([B * 0, B], 1)], 0))[:3, 3:] * G).sum()
    assert_close(grad(loss)(zero), first, rtol=1e-12, atol=1e-12)


def test_mixed_derivatives_in_matrix_and_exponent_in_every_order_of_modes():
    A, G = with_spectrum(SPREAD), symmetric_noise(4)
    q = torch.tensor(0.3, dtype=DOUBLE)
    loss = lambda X, s: (sg.matrix_power(X, s) * G).sum()  # noqa: E731
    h = 1e-6
    expected = (grad(loss)(A, q + h) - grad(loss)(A, q - h)) / (2 * h)
    tangent = torch.ones_like(q)
    assert_close(jacrev(lambda X: jvp(lambda s: loss(X, s), (q,), (tangent,))[1])(A), expected, rtol=1e-7, atol=1e-7)
    assert_close(jacrev(lambda X: grad(loss, argnums=1)(X, q))(A), expected, rtol=1e-7, atol=1e-7)
    assert_close(jvp(lambda s: grad(loss)(A, s), (q,), (tangent,))[1], expected, rtol=1e-7, atol=1e-7)
    assert_close(jacrev(lambda s: grad(loss)(A, s))(q), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 2.0])
def test_learnable_exponent_at_whole_numbers(value):
    A = with_spectrum(SPREAD).requires_grad_()
    p = torch.tensor(value, dtype=DOUBLE, requires_grad=True)
    f = lambda X, q: sg.matrix_power((X + X.mT) / 2, q)  # noqa: E731
    assert gradcheck(f, (A, p))
    assert gradgradcheck(f, (A, p))


@pytest.mark.parametrize("name", ["sqrt", "inv_sqrt", "log", "power", "inverse"])
def test_second_order_along_a_path_of_constant_rank(name):
    generator = torch.Generator().manual_seed(0)
    B, C = torch.randn(2, 4, 2, dtype=DOUBLE, generator=generator)
    G = symmetric_noise(4)
    loss = lambda t: (FUNCTIONS[name]((B + t * C) @ (B + t * C).mT) * G).sum()  # noqa: E731
    t, h = torch.tensor(0.1, dtype=DOUBLE), 1e-5
    expected = (grad(loss)(t + h) - grad(loss)(t - h)) / (2 * h)
    assert_close(grad(grad(loss))(t), expected, rtol=1e-5, atol=1e-6)
    assert_close(jvp(grad(loss), (t,), (torch.ones_like(t),))[1], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("f", [sg.polar, sg.matrix_inv_sqrt, sg.matrix_sqrt, sg.matrix_log])
def test_dual_numbers_through_a_plain_backward_pass(f):
    A, E, G = (
        with_spectrum(SPREAD),
        symmetric_noise(4),
        symmetric_noise(4, seed=9) + torch.ones(4, 4, dtype=DOUBLE).triu(),
    )
    expected = jvp(grad(lambda X: (f(X) * G).sum()), (A,), (E,))[1]
    with forward_ad.dual_level():
        X = forward_ad.make_dual(A.clone().requires_grad_(), E)
        (g,) = torch.autograd.grad((f(X) * G).sum(), X)
        assert_close(forward_ad.unpack_dual(g).tangent, expected)


def test_polar_tolerance_means_the_same_with_and_without_create_graph():
    M = torch.zeros(3, 2, dtype=DOUBLE)
    M[0, 0], M[1, 1] = 1, 1e-3
    M.requires_grad_()
    plain, graph = (torch.autograd.grad(sg.polar(M, rtol=1e-2).sum(), M, create_graph=c)[0] for c in (False, True))
    assert_close(plain, graph)


@pytest.mark.parametrize("gap", [1e-13, 1e-12, 1e-10, 1e-8])
def test_product_of_svd_factors_near_a_tie_is_as_good_as_the_gap_allows(gap):
    generator = torch.Generator().manual_seed(0)
    Q, R = (torch.linalg.qr(torch.randn(4, 4, dtype=DOUBLE, generator=generator))[0] for _ in range(2))
    M = (Q * torch.tensor([2 * (1 + gap), 2, 1, 0.5], dtype=DOUBLE)) @ R
    G = symmetric_noise(4)
    g = gradient(lambda X: (lambda U, S, Vh: (U * S) @ Vh)(*sg.svd(X)), M, G)
    assert relative_error(g, G) < 20 * torch.finfo(DOUBLE).eps / gap


def test_lyapunov_backward_of_the_inverse_root_to_second_order():
    A = with_spectrum([0.5, 1.0, 2.0]).requires_grad_()
    method = sg.NewtonSchulz(steps=30, backward="lyapunov", lyapunov_steps=30)
    assert gradgradcheck(lambda X: sg.matrix_inv_sqrt((X + X.mT) / 2, method=method), (A,))


@pytest.mark.parametrize("scale", [1e19, 1e-19, 1e-25, 1e30])
@pytest.mark.parametrize("method", [*ITERATIONS, "svd-newton"])
def test_newton_schulz_at_extreme_scales(method, scale):
    D = torch.diag(torch.tensor([1.0, 2, 3, 4]))
    assert_close(sg.matrix_sqrt(D * scale, method=method).diagonal(), (D.diagonal() * scale).sqrt())
    expected = gradient(sg.matrix_sqrt, D, torch.ones(4, 4))
    got = gradient(lambda X: sg.matrix_sqrt(X, method=method), D * scale, torch.ones(4, 4)) * scale**0.5
    assert relative_error(got, expected) < 1e-3
    with pytest.raises(sg.IndefiniteError):
        sg.matrix_sqrt(torch.diag(torch.tensor([1.0, -1, 3])) * scale, method=method)


def test_parameters_of_a_function_that_is_singular_off_the_spectrum():
    theta = torch.tensor(2.0, dtype=DOUBLE, requires_grad=True)
    A = torch.diag(torch.tensor([0.5, 0.2, 0.0], dtype=DOUBLE))
    sg.matrix_function(A, lambda x: theta * torch.log(1 - x), rtol=1e-8).sum().backward()
    assert_close(theta.grad, torch.log(torch.tensor([0.5, 0.8], dtype=DOUBLE)).sum())


def test_whole_powers_honour_clamp_and_tolerance():
    A = torch.diag(torch.tensor([2.0, 1e-3, -1.0], dtype=DOUBLE))
    assert_close(sg.matrix_power(A, 3, clamp=True).diagonal(), torch.tensor([8.0, 1e-9, 0.0], dtype=DOUBLE))
    assert_close(sg.matrix_power(A, 3).diagonal(), torch.tensor([8.0, 1e-9, -1.0], dtype=DOUBLE))
    assert_close(sg.matrix_power(A, 0, rtol=1e-2).diagonal(), torch.tensor([1.0, 0.0, 1.0], dtype=DOUBLE))
    assert_close(sg.matrix_power(A, -1, rtol=1e-2).diagonal(), torch.tensor([0.5, 0.0, -1.0], dtype=DOUBLE))


def test_tiny_exponents_keep_their_accuracy():
    """A^p ≈ I + p log A."""
    A, G = with_spectrum(SPREAD), symmetric_noise(4)
    p = 1e-10
    expected = p * gradient(sg.matrix_log, A, G)
    assert relative_error(gradient(lambda X: sg.matrix_power(X, p), A, G), expected) < 1e-8


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("f", LEARNED)
def test_activation_checkpointing(f, reentrant):
    X = torch.randn(6, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (expected,) = torch.autograd.grad(f(X).sum(), X)
    checkpoint(f, X, use_reentrant=reentrant).sum().backward()
    assert_close(X.grad, expected)
    with torch.autograd.graph.save_on_cpu():
        loss = f(X).sum()
    assert_close(torch.autograd.grad(loss, X)[0], expected)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param(BACKEND, marks=pytest.mark.compiler)])
def test_one_compilation_serves_every_size(backend):
    torch._dynamo.reset()
    root = torch.compile(sg.matrix_sqrt, fullgraph=True, dynamic=True, backend=backend)
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    with torch._dynamo.config.patch({limit: 3}):
        for d in range(17, 27):
            A = torch.eye(d) * 4
            assert_close(root(A), sg.matrix_sqrt(A))


def test_a_derivative_that_torch_cannot_differentiate_is_enough():
    A, G = with_spectrum(SPREAD), symmetric_noise(4)
    df = lambda x: torch.from_numpy(np.cos(x.detach().numpy()))  # noqa: E731
    g = gradient(lambda X: sg.matrix_function(X, torch.sin, df), A, G)
    assert_close(g, gradient(lambda X: sg.matrix_function(X, torch.sin), A, G))


def test_inspect_works_in_inference_mode():
    with torch.inference_mode():
        assert sg.diagnostics.inspect(torch.eye(3)).ties == 3


def test_projector_takes_any_whole_number():
    A = with_spectrum(SPREAD)
    assert_close(sg.spectral_projector(A, np.int64(2)), sg.spectral_projector(A, 2))


def test_second_derivatives_of_large_matrices_come_in_slabs(monkeypatch):
    from spectralgrad.autograd.functions import frechet_derivative

    A, E, G = with_spectrum(np.linspace(0.5, 2, 12)), symmetric_noise(12), symmetric_noise(12, seed=3)
    hvp = lambda: jvp(grad(lambda X: (sg.matrix_log(X) * G).sum()), (A,), (E,))[1]  # noqa: E731
    whole = hvp()
    monkeypatch.setattr(frechet_derivative, "_CHUNK", 12 * 12 * 5)
    assert_close(hvp(), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "root",
    [sg.covariance_sqrt, lambda X: sg.nn.functional.covariance_pooling(X, output="full")],
    ids=["covariance_sqrt", "pooling"],
)
def test_the_null_vector_of_centred_features_costs_no_digits(root):
    """Its computed eigenvalue is noise that may pass the rank tolerance; its inverse root would magnify rounding.

    The features are well conditioned, so the roots of all matrices come out to N roundings.
    """
    X = torch.randn(96, 256, 49, generator=torch.Generator().manual_seed(0))
    exact = root(X.double())
    worst = max(relative_error(a.double(), b) for a, b in zip(root(X), exact, strict=True))
    assert worst < 49 * unit(torch.float32)
