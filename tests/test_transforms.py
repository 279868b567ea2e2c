"""N9: gradcheck, second order, forward mode, vmap, Jacobians, Hessians, torch.compile."""

import itertools

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.dispatch.torch_internals import compiles_gradients
from spectralgrad.testing import with_spectrum

from .helpers import (
    BACKEND,
    DECOMPOSERS,
    DOUBLES,
    FUNCTIONAL,
    FUNCTIONS,
    SINGULAR,
    in_turn,
    noise,
    pairs,
    symmetric_noise,
    symmetrized,
)


def _recomposed(result, keep):
    """Quantities of a decomposition that do not depend on signs or phases of its vectors."""
    w, V = result
    return w, V[..., keep] @ V[..., keep].mH


def _svd_parts(M, full=False):
    U, S, Vh = sg.svd(M, full)
    return S, U[..., :1] @ Vh[..., :1, :], U[..., :, 3:] @ U[..., :, 3:].mH


HERMITIAN = {
    **FUNCTIONS,
    "eigh": lambda A: _recomposed(sg.eigh(A), [0, 2]),
    "projector": lambda A: sg.spectral_projector(A, 2),
}
GENERAL = {
    "svd": _svd_parts,
    "svd-full": lambda M: _svd_parts(M, True),
    "svd-wide": lambda M: _svd_parts(M.mH, True),
    "polar": sg.polar,
    "polar-wide": lambda M: sg.polar(M.mH),
    "covariance": sg.covariance,
    "covariance_sqrt": sg.covariance_sqrt,
    "covariance_sqrt-eps": lambda M: sg.covariance_sqrt(M, eps=0.1),
}
SPREAD = [0.4, 0.9, 1.7, 2.5]


def _general(dtype):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, 5, 3, dtype=dtype, generator=generator)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", HERMITIAN)
def test_gradcheck_of_hermitian_functions(name, dtype):
    A = torch.stack([with_spectrum(SPREAD, dtype=dtype, seed=s) for s in (0, 1)]).requires_grad_()
    f = symmetrized(HERMITIAN[name])
    assert gradcheck(f, (A,), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, (A,))


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", GENERAL)
def test_gradcheck_of_general_functions(name, dtype):
    M = _general(dtype).requires_grad_()
    assert gradcheck(GENERAL[name], (M,), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(GENERAL[name], (M,))


@in_turn(
    "name, spectrum",
    itertools.product([name for name in HERMITIAN if name != "eigh"], [[0.5, 1, 2, 2], [1.0, 1 + 1e-13, 2, 2]]),
    dtype=DOUBLES,
)
def test_second_order_of_functions_is_exact_at_ties(name, spectrum, dtype):
    A = with_spectrum(spectrum, dtype=dtype).requires_grad_()
    f = symmetrized(HERMITIAN[name])
    assert gradcheck(f, (A,), check_forward_ad=True)
    assert gradgradcheck(f, (A,), check_fwd_over_rev=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_order_of_functions_is_exact_at_the_identity(name):
    A = torch.eye(3, dtype=torch.float64, requires_grad=True)
    f = symmetrized(FUNCTIONS[name])
    assert gradgradcheck(f, (A,), check_fwd_over_rev=True)


def test_third_derivatives_are_exact_or_refused():
    A = with_spectrum(SPREAD).requires_grad_()
    (g,) = torch.autograd.grad(sg.matrix_log(A).sum(), A, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), A, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives"):
        torch.autograd.grad(h.sum(), A)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_second_order_of_polar_is_exact_at_a_rotation(dtype):
    M = torch.linalg.qr(_general(dtype)[0])[0].clone().requires_grad_()
    assert gradcheck(sg.polar, (M,), check_forward_ad=True)
    assert gradgradcheck(sg.polar, (M,))


def test_third_order_of_the_square_root_at_a_tie():
    """d³/dt³ √(1+t) = 3/8 at t = 0, along the identity, where every eigenvalue is equal."""
    identity = torch.eye(3, dtype=torch.float64)
    f = lambda t: sg.matrix_sqrt(identity * (1 + t))[0, 0]  # noqa: E731
    t = torch.tensor(0.0, dtype=torch.float64)
    assert_close(grad(grad(grad(f)))(t), torch.tensor(3 / 8, dtype=torch.float64))
    assert_close(jacfwd(jacrev(jacrev(f)))(t), torch.tensor(3 / 8, dtype=torch.float64))


def test_mixed_second_derivatives_in_the_exponent_and_in_parameters():
    A = with_spectrum(SPREAD).requires_grad_()
    p = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    power = symmetrized(lambda X: X)
    assert gradgradcheck(lambda X, q: sg.matrix_power(power(X), q), (A, p))
    assert gradgradcheck(lambda X, q: sg.matrix_function(power(X), lambda x: torch.tanh(q * x)), (A, p))


def _loss(name, method):
    weights = noise(4, 4)

    def loss(A):
        if name == "eigh":
            w, V = sg.eigh(A, method=method)
            return (V.square() * weights).sum() + w.square().sum()
        if name == "svd":
            U, S, Vh = sg.svd(A, method=method)
            return (U.square() * weights).sum() + (Vh.square() * weights).sum() + S.square().sum()
        return (FUNCTIONS[name](A, method=method) * weights).sum()

    return loss


EVERY = (
    [("eigh", m) for m in DECOMPOSERS]
    + [("svd", m) for m in SINGULAR]
    + [("inv_sqrt", m) for m in FUNCTIONAL]
    + [("inv_sqrt", sg.SVDPI(unrolled=True)), ("sqrt", sg.NewtonSchulz(backward="lyapunov"))]
    + [("sqrt", "mtp"), ("sqrt", "mpa")]
    + [(name, "exact") for name in FUNCTIONS if name != "inv_sqrt"]
)


@pytest.mark.parametrize(("name", "method"), EVERY, ids=str)
def test_vmap_jacobians_and_hessians_agree(name, method):
    loss = _loss(name, method)
    batch = torch.stack([with_spectrum(SPREAD, seed=s) for s in range(3)])
    expected = torch.stack([grad(loss)(A) for A in batch])
    assert_close(vmap(grad(loss))(batch), expected)
    assert_close(grad(lambda X: vmap(loss)(X).sum())(batch), expected)
    assert_close(vmap(loss, in_dims=2)(batch.movedim(0, 2)), torch.stack([loss(A) for A in batch]))
    A = batch[0]
    assert_close(jacfwd(loss)(A), expected[0])
    assert_close(jvp(loss, (A,), (torch.eye(4, dtype=A.dtype),))[1], expected[0].diagonal().sum())
    assert_close(hessian(loss)(A), jacrev(jacrev(loss))(A), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", SINGULAR)
def test_eigenvalues_alone_have_their_gradient_at_a_tie_under_vmap(method):
    """Eigenvectors that were not used bring no infinite gap into it."""
    A = torch.diag_embed(torch.tensor([[1.0, 1, 3], [2, 2, 2]]))
    loss = lambda X: sg.eigh(X, method=method).eigenvalues.square().sum() / 2  # noqa: E731
    for g in (vmap(grad(loss))(A), grad(lambda X: vmap(loss)(X).sum())(A)):
        assert_close(g, A)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_parameters_of_a_function_are_differentiated_through_vmap(dtype):
    """Outside of vmap the exponent carries a gradient that the matrices inside do not show."""
    batch = torch.stack([with_spectrum(SPREAD, dtype=dtype, seed=s) for s in range(3)])
    G, E = symmetric_noise(4, dtype), symmetric_noise(4, dtype, seed=2)
    p = torch.tensor(0.3, dtype=torch.float64)
    inner = lambda A, q: (sg.matrix_power(A, q) * G.conj()).sum().real  # noqa: E731
    slope = lambda A, q: (grad(inner)(A, q) * E.conj()).sum().real  # noqa: E731
    for f in (inner, slope):
        mapped = lambda q, f=f: vmap(f, in_dims=(0, None))(batch, q).sum()  # noqa: E731
        h = 1e-5
        expected = (mapped(p + h) - mapped(p - h)) / (2 * h)
        assert_close(grad(mapped)(p), expected, rtol=1e-7, atol=1e-8)
        assert_close(jvp(mapped, (p,), (torch.ones_like(p),))[1], expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ["log", "sqrt", "inv_sqrt"])
def test_second_derivatives_map_over_a_batch(name):
    loss = _loss(name, "exact")
    batch = torch.stack([with_spectrum(SPREAD, seed=s) for s in range(2)])
    assert_close(vmap(jacrev(jacrev(loss)))(batch), torch.stack([jacrev(jacrev(loss))(A) for A in batch]))


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", HERMITIAN)
def test_a_dual_cotangent_goes_through_a_plain_backward_pass(name, dtype):
    """The gradient is linear in its cotangent, so its derivative is the gradient for the cotangent's tangent."""
    A = with_spectrum(SPREAD, dtype=dtype).requires_grad_()
    value = HERMITIAN[name](A)
    value = value[1] if isinstance(value, tuple) else value
    G, E = symmetric_noise(4, dtype), symmetric_noise(4, dtype, seed=2)
    (expected,) = torch.autograd.grad(value, A, E, retain_graph=True)
    with forward_ad.dual_level():
        (g,) = torch.autograd.grad(value, A, forward_ad.make_dual(G, E))
        assert_close(forward_ad.unpack_dual(g).tangent, expected)


COMPILED = [
    *[("eigh", m) for m in ("svd-pade", "svd-taylor", "svd-clip", "svd-pi")],
    ("svd", "svd-pade"),
    *[("inv_sqrt", m) for m in ("exact", "svd-taylor", "newton-schulz", "svd-newton", sg.PI(iterations=3))],
    ("sqrt", "exact"),
    ("sqrt", sg.NewtonSchulz(backward="lyapunov")),
    *[("sqrt", "mtp"), ("inv_sqrt", "mpa"), ("svd", sg.SVDInv(faithful=True))],
    *[(name, "exact") for name in ("log", "exp", "power", "function")],
]
# Each operator and each kind of iteration once with the code that inductor generates, which takes seconds. The fast
# tier has the same graphs, forward and backward, called operation by operation.
INDUCTOR = [
    *[("eigh", "svd-pade"), ("svd", "svd-pade"), ("inv_sqrt", "exact"), ("inv_sqrt", "newton-schulz")],
    *[("sqrt", sg.NewtonSchulz(backward="lyapunov")), ("function", "exact")],
]


def _compiled_equals_eager(name, method, backend):
    torch._dynamo.reset()
    loss = _loss(name, method)
    A = with_spectrum([1.0, 1, 2, 3]) if method == "exact" else with_spectrum(SPREAD)
    expected = grad(loss)(A)
    A = A.requires_grad_()
    value = torch.compile(loss, fullgraph=True, backend=backend)(A)
    value.backward()
    assert_close(value, loss(A))
    assert_close(A.grad, expected)


@pytest.mark.parametrize(("name", "method"), COMPILED, ids=str)
def test_compiled_without_a_graph_break_equals_eager(name, method):
    _compiled_equals_eager(name, method, "aot_eager")


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "method"), INDUCTOR, ids=str)
def test_compiled_by_inductor_equals_eager(name, method):
    _compiled_equals_eager(name, method, BACKEND)


both_backends = pytest.mark.parametrize("backend", ["aot_eager", pytest.param(BACKEND, marks=pytest.mark.compiler)])


@both_backends
@pytest.mark.parametrize("f", [sg.polar, sg.covariance_sqrt, lambda M: sg.spectral_projector(M.mT @ M, 1)])
def test_other_verbs_compile(f, backend):
    torch._dynamo.reset()
    M = _general(torch.float64)[0].requires_grad_()
    (expected,) = torch.autograd.grad(f(M).square().sum() + f(M).sum(), M)
    loss = torch.compile(lambda X: f(X).square().sum() + f(X).sum(), fullgraph=True, backend=backend)
    (g,) = torch.autograd.grad(loss(M), M)
    assert_close(g, expected)


@pytest.mark.parametrize(
    "f",
    [lambda A: sg.matrix_sqrt(A, method="newton-schulz"), lambda A: sg.eigvalsh(A, 2 * A @ A.mH)],
    ids=["checked", "pencil"],
)
def test_compiled_functions_of_complex_matrices(f):
    """Inside an operator of a compiled graph torch ignores that a view is conjugated, unless told otherwise."""
    torch._dynamo.reset()
    A = with_spectrum(SPREAD, dtype=torch.complex128)
    assert_close(torch.compile(f, fullgraph=True, backend="aot_eager")(A), f(A))


@both_backends
def test_bad_input_is_refused_under_compile_and_vmap_too(backend):
    torch._dynamo.reset()
    A = torch.eye(3).repeat(2, 1, 1)
    A[1, 0, 0] = torch.inf
    with pytest.raises(sg.NonFiniteError, match="position 1"):
        torch.compile(sg.matrix_sqrt, fullgraph=True, backend=backend)(A)
    with pytest.raises(sg.NonFiniteError, match="position 1"):
        vmap(sg.matrix_sqrt)(A)
    with pytest.raises(sg.IndefiniteError, match="batch position"):
        vmap(sg.matrix_log)(-torch.eye(3).repeat(2, 1, 1))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # of torch's own jacfwd
@pytest.mark.parametrize("nested", [jacfwd, lambda f: jacrev(jacrev(f))], ids=["jacfwd", "jacrev"])
def test_forward_mode_and_second_derivatives_leave_compiled_code(nested):
    """Compiled, torch.func would return zeros for both; a graph break leads to eager mode."""
    A, derivative = with_spectrum([0.5, 1.0, 1.0]), nested(lambda X: sg.eigvalsh(X).exp().sum())
    torch._dynamo.reset()
    assert_close(torch.compile(derivative, backend="aot_eager")(A), derivative(A))


@pytest.mark.parametrize("nested", [jacfwd, lambda f: jacrev(jacrev(f))], ids=["jacfwd", "jacrev"])
def test_forward_mode_and_second_derivatives_say_why_they_leave_compiled_code(nested):
    A, derivative = with_spectrum([0.5, 1.0, 1.0]), nested(lambda X: sg.eigvalsh(X).exp().sum())
    torch._dynamo.reset()
    with pytest.raises(Exception, match="forward mode and second derivatives"):
        torch.compile(derivative, backend="aot_eager", fullgraph=True)(A)


@pytest.mark.parametrize("transform", [grad, vmap])
def test_transforms_compile_in_one_graph_or_say_why_not(transform):
    A = with_spectrum([0.5, 1.0, 1.0])
    A, f = (A, lambda X: sg.eigvalsh(X).exp().sum()) if transform is grad else (A[None], sg.eigvalsh)
    torch._dynamo.reset()
    compiled = torch.compile(transform(f), backend="aot_eager", fullgraph=True)
    if compiles_gradients:
        assert_close(compiled(A), transform(f)(A))
    else:
        with pytest.raises(Exception, match="in older torch its gradients and vmap neither"):
            compiled(A)


FAKE = {
    **{name: (f, (2, 3, 3)) for name, f in HERMITIAN.items()},
    **{name: (f, (2, 5, 3)) for name, f in GENERAL.items()},
    "eigvalsh": (sg.eigvalsh, (2, 3, 3)),
    "svdvals": (sg.svdvals, (2, 5, 3)),
    "svdvals-wide": (sg.svdvals, (2, 3, 5)),
    "pencil": (lambda A: sg.eigh(A, torch.eye(3, dtype=A.dtype).expand_as(A)), (2, 3, 3)),
    "pencil values": (lambda A: sg.eigvalsh(A, torch.eye(3, dtype=A.dtype).expand_as(A)), (2, 3, 3)),
    "nuclear norm": (sg.nuclear_norm, (2, 5, 3)),
    "low rank": (lambda M: sg.low_rank(M, 2), (2, 5, 3)),
}


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", FAKE)
def test_results_of_fake_tensors_have_the_shape_and_type_of_real_ones(name, dtype):
    """torch.compile plans with them, before anything is computed."""
    f, shape = FAKE[name]
    M = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    M = M @ M.mH + torch.eye(3, dtype=dtype) if shape[-1] == shape[-2] else M
    described = lambda r: [(x.shape, x.dtype) for x in (r if isinstance(r, tuple) else (r,))]  # noqa: E731
    expected = described(f(M))
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(M)
        assert described(f(fake)) == described(f(fake.requires_grad_())) == expected


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("name", HERMITIAN)
def test_only_the_hermitian_part_of_directions_and_cotangents_counts(name, dtype):
    """In forward mode, and in the backward pass that can be differentiated again."""
    A, E = with_spectrum([0.5, 1.0, 2.0], dtype=dtype), noise(3, 3, dtype=dtype)
    f = (lambda X: HERMITIAN["eigh"](X)[1]) if name == "eigh" else HERMITIAN[name]
    sym = (E + E.mH) / 2
    assert_close(jvp(f, (A,), (E,))[1], jvp(f, (A,), (sym,))[1])
    leaf = A.clone().requires_grad_()
    for graph in (False, True):
        found, expected = (torch.autograd.grad(f(leaf), leaf, G, create_graph=graph)[0] for G in (E, sym))
        assert_close(found, expected)
        assert_close(found, found.mH)


@pytest.mark.parametrize(("name", "method"), pairs())
def test_gradients_of_every_method_are_hermitian_and_the_same_with_a_graph(name, method):
    leaf, G = with_spectrum([0.5, 1.0, 2.0], dtype=torch.float64).requires_grad_(), noise(3, 3)
    plain, graphed = (
        torch.autograd.grad(FUNCTIONS[name](leaf, method=method), leaf, G, create_graph=graph)[0]
        for graph in (False, True)
    )
    assert_close(plain, plain.mH)
    assert_close(graphed, plain)
