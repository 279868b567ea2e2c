"""N9 for eigsh: every order of derivative, forward mode, vmap, torch.compile, and memory of the order of nk."""

from types import SimpleNamespace

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum

from .features import needs
from .helpers import DOUBLES, noise

K = 2
FORMS = ("dense", "pair", "callable", "object", "module")


def _tridiagonal(n, dtype=torch.float64):
    """A real diagonal and what stands below it, which determine a Hermitian matrix with gaps."""
    generator = torch.Generator().manual_seed(1)
    side = torch.randn(n - 1, dtype=dtype, generator=generator)
    return torch.linspace(-3, 3, n, dtype=torch.float64), side


def _dense(diagonal, side):
    return torch.diag(diagonal.to(side.dtype)) + torch.diag(side, -1) + torch.diag(side.conj(), 1)


def _pair(diagonal, side):
    i = torch.arange(len(diagonal))
    below = torch.stack([i[1:], i[:-1]])
    return torch.cat([i.expand(2, -1), below, below.flip(0)], 1), torch.cat(
        [diagonal.to(side.dtype), side, side.conj()]
    )


def _product(diagonal, side):
    """It uses a tensor of integers too."""
    rows, edge = torch.arange(len(side)), torch.zeros(1, dtype=side.dtype)
    below = torch.cat([edge, side])[:, None]

    def product(X):
        shifted = torch.cat([X[:1], X[rows]])
        return diagonal[:, None] * X + below * shifted + torch.cat([side.conj()[:, None] * X[rows + 1], 0 * X[:1]])

    return product


class _Module(torch.nn.Module):
    def __init__(self, diagonal, side):
        super().__init__()
        self.pieces = diagonal, side

    def forward(self, X):
        return _dense(*self.pieces) @ X


def _pairs(form, diagonal, side):
    n, dtype = len(diagonal), side.dtype
    options = {"size": n, "dtype": dtype}
    if form == "dense":
        return sg.eigsh(_dense(diagonal, side), K)
    if form == "pair":
        return sg.eigsh(_pair(diagonal, side), K, size=n)
    if form == "callable":
        return sg.eigsh(_product(diagonal, side), K, **options)
    if form == "object":
        return sg.eigsh(SimpleNamespace(shape=(n, n), dtype=dtype, matmul=_product(diagonal, side)), K)
    return sg.eigsh(_Module(diagonal, side), K, **options)


def _parts(form):
    """The eigenvalues and some entries of a projector, which do not depend on signs and phases."""

    def parts(diagonal, side):
        w, V = _pairs(form, diagonal, side)
        return w, (V[:, :1] @ V[:, :1].mH)[:2]

    return parts


def _loss(w, V):
    weights = torch.arange(V.shape[-2], dtype=w.dtype).cos()
    return w.pow(3).sum() / 10 + (V.abs().square() * weights[:, None] * w).sum()


def _scalar(form):
    if form == "whole":
        return lambda diagonal, side: _loss(*sg.eigh(_dense(diagonal, side), k=K))
    return lambda diagonal, side: _loss(*_pairs(form, diagonal, side))


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_first_and_second_order_agree_with_finite_differences(form, dtype):
    inputs = tuple(x.requires_grad_() for x in _tridiagonal(5, dtype))
    assert gradcheck(_parts(form), inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(_parts(form), inputs, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
def test_a_dense_matrix_has_derivatives_among_hermitian_matrices(dtype):
    """As all functions: a direction counts with its Hermitian part, and gradients are Hermitian."""
    A, E, G = _dense(*_tridiagonal(5, dtype)), noise(5, 5, dtype=dtype), noise(5, 5, dtype=dtype, seed=1)

    def projector(A):
        V = sg.eigsh(A, K).eigenvectors
        return V @ V.mH

    assert_close(jvp(projector, (A,), (E,))[1], jvp(projector, (A,), ((E + E.mH) / 2,))[1])
    leaf = A.clone().requires_grad_()
    g = torch.autograd.grad(projector(leaf), leaf, G)[0]
    assert_close(g, g.mH)


@pytest.mark.parametrize("form", ["dense", "callable"])
def test_third_order(form):
    diagonal, side = _tridiagonal(4)

    def slope(x):
        return torch.autograd.grad(_scalar(form)(x, side), x, create_graph=True)[0]

    assert gradgradcheck(slope, (diagonal.requires_grad_(),), fast_mode=True)


def _hessian_product(f, x, direction):
    leaf = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    return g.detach(), torch.autograd.grad(g, leaf, direction)[0]


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_values_gradients_and_hessian_products_are_those_of_the_whole_decomposition(dtype, largest):
    """A solve has the relative residual 100 ε and amplifies it by ‖A‖ over the gap; a Hessian product has two."""
    n, k = 200, 4
    spectrum = [-9, -8, -7.5, -7, *torch.linspace(-5, 5, n - 8).tolist(), 7, 7.5, 8, 9]
    A = with_spectrum(spectrum, dtype=dtype, seed=4)
    direction = with_spectrum(torch.arange(float(n)).cos().tolist(), dtype=dtype, seed=5)
    amplified = 9 / 2
    bound = 1e3 * torch.finfo(dtype).eps
    part, whole = sg.eigsh(A, k, largest=largest), sg.eigh(A, k=k, largest=largest)
    assert (part.eigenvalues - whole.eigenvalues).abs().max() < 9 * bound
    found = _hessian_product(lambda A: _loss(*sg.eigsh(A, k, largest=largest)), A, direction)
    expected = _hessian_product(lambda A: _loss(*sg.eigh(A, k=k, largest=largest)), A, direction)
    assert relative_error(found[0], expected[0]) < bound * amplified
    assert relative_error(found[1], expected[1]) < bound * amplified**2


@pytest.mark.parametrize("form", ["dense", "pair", "callable"])
def test_forward_mode_of_an_iterative_solution(form):
    """At a size at which the eigenpairs come from ARPACK."""
    diagonal, side = _tridiagonal(80)
    changes = diagonal.sin(), side.cos()
    _, expected = jvp(_scalar("whole"), (diagonal, side), changes)
    _, found = jvp(_scalar(form), (diagonal, side), changes)
    assert_close(found, expected)
    with forward_ad.dual_level():
        dual = [forward_ad.make_dual(x, dx) for x, dx in zip((diagonal, side), changes, strict=True)]
        assert_close(forward_ad.unpack_dual(_scalar(form)(*dual)).tangent, expected)


@pytest.mark.parametrize("form", ["dense", "pair", "callable", "module"])
def test_transforms_compose(form):
    diagonal, side = _tridiagonal(5)
    f, expected = _scalar(form), hessian(_scalar("whole"))(diagonal, side)
    for transformed in (hessian(f), jacrev(jacrev(f)), jacrev(jacfwd(f))):
        assert_close(transformed(diagonal, side), expected)
    D, S = torch.stack([diagonal, diagonal + 0.3 * diagonal.cos()]), torch.stack([side, side / 2])
    assert_close(vmap(f)(D, S), vmap(_scalar("whole"))(D, S))
    assert_close(vmap(f, in_dims=(0, None))(D, side), vmap(_scalar("whole"), in_dims=(0, None))(D, side))
    slopes = vmap(grad(_scalar("whole")))(D, S)
    assert_close(vmap(grad(f))(D, S), slopes)
    assert_close(grad(lambda D: vmap(f)(D, S).sum())(D), slopes)
    assert_close(vmap(hessian(f))(D, S)[0], expected)


def test_forward_mode_over_itself_is_refused():
    diagonal, side = _tridiagonal(5)
    with pytest.raises(NotImplementedError, match="forward mode over forward mode"):
        jacfwd(jacfwd(_scalar("callable")))(diagonal, side)


def test_a_batch_of_dense_matrices():
    A = torch.stack([_dense(*_tridiagonal(n)) for n in (6, 6)]).reshape(2, 1, 6, 6)
    A = (A + torch.eye(6) * torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1)).requires_grad_()
    w, V = sg.eigsh(A, K)
    assert w.shape == (2, 1, K)
    assert V.shape == (2, 1, 6, K)
    (g,) = torch.autograd.grad(_loss(w[1, 0], V[1, 0]), A)
    assert not g[0].any()
    (alone,) = torch.autograd.grad(_loss(*sg.eigsh(A[1, 0], K)), A)
    assert torch.equal(g, alone)
    empty = sg.eigsh(A[:0], K)
    assert empty.eigenvalues.shape == (0, 1, K)
    assert empty.eigenvectors.shape == (0, 1, 6, K)
    with pytest.raises(sg.ShapeError, match="square operator"):
        sg.eigsh(A.detach().to_sparse(), K)


def test_the_second_derivative_of_a_sparse_tensor():
    """Of a leaf: torch's constructor of sparse tensors has no second derivative, and silently."""
    diagonal, side = _tridiagonal(70)
    A = _dense(diagonal, side)
    sparse = A.to_sparse().requires_grad_()
    (g,) = torch.autograd.grad(_loss(*sg.eigsh(sparse, K)), sparse, create_graph=True)
    weights = torch.arange(70.0, dtype=torch.float64).cos()
    weights = weights[:, None] + weights
    (h,) = torch.autograd.grad((g.to_dense() * weights).sum(), sparse)
    mask = (A != 0).double()
    _, expected = _hessian_product(lambda A: _loss(*sg.eigsh(A, K)), A, weights * mask)
    assert_close(h.to_dense(), expected * mask)
    indices, values = _pair(diagonal, side)

    def f(values):
        return _loss(*sg.eigsh(torch.sparse_coo_tensor(indices, values, (70, 70), check_invariants=False), K))

    leaf = values.clone().requires_grad_()
    for transformed in (
        lambda: torch.autograd.grad(f(leaf), leaf, create_graph=True),
        lambda: grad(lambda x: grad(f)(x).sum())(values),
    ):
        with pytest.raises(NotImplementedError, match=r"eigsh\(\(indices, values\)"):
            transformed()


@needs("sparse tensors in torch.func")
def test_a_transform_of_a_sparse_tensor_made_of_values():
    indices, values = _pair(*_tridiagonal(70))

    def f(values):
        return _loss(*sg.eigsh(torch.sparse_coo_tensor(indices, values, (70, 70), check_invariants=False), K))

    expected = grad(lambda values: _loss(*sg.eigsh((indices, values), K, size=70)))(values)
    assert_close(grad(f)(values), expected)


class _Hidden(torch.autograd.Function):
    """The product with a diagonal matrix in a form into which torch's function modes do not see."""

    @staticmethod
    def forward(diagonal, X):
        return diagonal[:, None] * X

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, G):
        diagonal, X = ctx.saved_tensors
        return (G * X).sum(-1), diagonal[:, None] * G

    @staticmethod
    def jvp(ctx, change, _):
        return change[:, None] * ctx.saved_tensors[1]


def test_tensors_that_a_callable_hides_have_a_first_derivative_only():
    diagonal, _ = _tridiagonal(6)

    def f(diagonal):
        return _loss(*sg.eigsh(lambda X: _Hidden.apply(diagonal, X), K, size=6, dtype=torch.float64))

    leaf = diagonal.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    (expected,) = torch.autograd.grad(_loss(*sg.eigsh(leaf.diag(), K)), leaf)
    assert_close(g, expected)
    assert_close(grad(f)(diagonal), expected)
    with pytest.raises(NotImplementedError, match="where they cannot be found"):
        torch.autograd.grad(g.sum() + leaf.square().sum(), leaf)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="where they cannot be found"):
        f(forward_ad.make_dual(diagonal, diagonal.cos()))


def test_operator_objects_may_compute_their_matrix_at_the_first_product():
    diagonal, side = (x.requires_grad_() for x in _tridiagonal(6))

    class Lazy:
        shape, dtype, matrix = (6, 6), torch.float64, None

        def matmul(self, X):
            if self.matrix is None:
                self.matrix = _dense(diagonal, side)
            return self.matrix @ X

    (g,) = torch.autograd.grad(_loss(*sg.eigsh(Lazy(), K)), diagonal, create_graph=True)
    (h,) = torch.autograd.grad(g[0], diagonal)
    assert_close(h, hessian(_scalar("whole"))(diagonal.detach(), side.detach())[0])


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's, at graph breaks; it filters it itself
@pytest.mark.parametrize("form", ["dense", "pair", "callable"])
def test_compiled_equals_eager(form):
    """Without a graph break, except for a callable."""
    dtype = torch.float64 if form == "pair" else torch.complex128
    torch._dynamo.reset()
    inputs = tuple(x.requires_grad_() for x in _tridiagonal(70, dtype))
    f = _scalar(form)
    value = torch.compile(f, fullgraph=form != "callable", backend="aot_eager")(*inputs)
    assert_close(value, f(*inputs))
    assert_close(torch.autograd.grad(value, inputs), torch.autograd.grad(f(*inputs), inputs))


@pytest.mark.parametrize("form", ["dense", "pair"])
def test_half_types_are_computed_in_single_precision(form):
    diagonal, side = (x.bfloat16() for x in _tridiagonal(70))
    f = _scalar(form)
    slopes = grad(f, (0, 1))(diagonal, side)
    assert {g.dtype for g in slopes} == {torch.bfloat16}
    single = grad(_scalar("whole"), (0, 1))(diagonal.float(), side.float())
    # The results are rounded to bfloat16 before the loss, which multiplies the eigenvalues' errors by their square.
    for g, expected in zip(slopes, single, strict=True):
        assert relative_error(g.float(), expected) < 30 * torch.finfo(torch.bfloat16).eps


class _Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that is made."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(x, torch.Tensor) and x.layout == torch.strided:
                self.size = max(self.size, x.numel())
        return result


@pytest.mark.parametrize("form", ["pair", "callable"])
def test_no_tensor_is_larger_than_the_eigenvectors_or_the_values(form):
    n = 600
    diagonal, side = (x.requires_grad_() for x in _tridiagonal(n))
    with _Largest() as largest:
        (g,) = torch.autograd.grad(_scalar(form)(diagonal, side), diagonal, create_graph=True)
        torch.autograd.grad(g.sum(), diagonal)
    assert n * K <= largest.size <= 2 * (3 * n)  # the places of the values, two for each


def test_indices_and_values_are_checked():
    indices, values = _pair(*_tridiagonal(6))
    with pytest.raises(sg.ArgumentError, match="size=n"):
        sg.eigsh((indices, values), K)
    with pytest.raises(sg.ShapeError, match="expected indices"):
        sg.eigsh((indices, values[1:]), K, size=6)
    twice = torch.cat([indices, indices], 1), torch.cat([values, values]) / 2  # in any order, and several at a place
    assert_close(sg.eigsh(twice, K, size=6).eigenvalues, sg.eigsh((indices, values), K, size=6).eigenvalues)
