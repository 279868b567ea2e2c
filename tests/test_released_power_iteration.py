"""``pi:faithful=True``: the released baseline, from random starts; what it computes, and how it meets torch."""

from itertools import product

import pytest
import torch
from torch.func import vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn import DecorrelatedBatchNorm2d
from spectralgrad.testing import random_orthogonal, relative_error, with_spectrum

from .helpers import DOUBLES, DTYPES, gradient, noise, symmetric_noise

FAITHFUL = sg.PI(faithful=True)
CLOSE = (0.9, 0.95, 0.97, 0.98, 0.99, 1.0)  # 19 steps do not separate them


def root(A, method=FAITHFUL, seed=0):
    torch.manual_seed(seed)
    return sg.matrix_inv_sqrt(A, method=method)


class Step(torch.autograd.Function):
    """One power step, with the product M ū of the released backward pass instead of Mᴴ ū."""

    @staticmethod
    def forward(ctx, M, v):
        Mv = M @ v
        length = max(float(Mv.norm()), 1e-5)
        ctx.save_for_backward(M, v, Mv / length)
        ctx.length = length
        return Mv / length

    @staticmethod
    def backward(ctx, g):
        M, v, y = ctx.saved_tensors
        u = (torch.eye(len(M), dtype=M.dtype) - y @ y.mH) @ g / ctx.length
        return u @ v.mH, M @ u


def defined(A, eps=1e-4, iterations=19, seed=0):
    """A^(-1/2) of one matrix by the released loop, and the number of vectors in it."""
    torch.manual_seed(seed)
    starts = torch.randn(A.shape, dtype=A.dtype)
    M, S, last = A, torch.zeros_like(A), None
    for i in range(len(A)):
        v = starts[:, i : i + 1] / starts[:, i].norm()
        for _ in range(iterations):
            v = Step.apply(M, v)
        w = ((M @ v).mH @ v / (v.mH @ v)).real.squeeze()
        if last is not None and (w > last or w < eps):
            return S, i
        S, last = S + v @ v.mH / w.sqrt(), w
        M = M - M @ v @ v.mH
    return S, len(A)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("spectrum", [(0.05, 0.2, 0.5, 1.0), CLOSE, (1e-5, 1e-3, 0.3, 1.0)], ids=["wide", "close", "ε"])
def test_value_and_gradient_are_those_of_the_released_loop(spectrum, dtype):
    A, G = with_spectrum(spectrum, dtype=dtype), noise(len(spectrum), len(spectrum), dtype=dtype, seed=5)
    for seed in range(5):
        expected, count = defined(A, seed=seed)
        assert_close(root(A, seed=seed), expected, rtol=1e-8, atol=1e-8)
        assert int(torch.linalg.matrix_rank(root(A, seed=seed), rtol=1e-9)) == count
        g, truth = (
            gradient(lambda X, f=f, s=seed: f(X, seed=s), A, G)
            for f in (root, lambda X, seed: defined(X, seed=seed)[0])
        )
        assert relative_error(g, (truth + truth.mH) / 2) < 1e-7


def test_with_close_eigenvalues_a_rising_quotient_ends_the_deflation():
    counts = {defined(with_spectrum(CLOSE), seed=seed)[1] for seed in range(20)}
    assert min(counts) < 6
    assert len(counts) > 1


def test_where_it_converges_it_is_the_inverse_root_with_its_gradient():
    A, G, many = with_spectrum((0.01, 0.1, 1.0)), symmetric_noise(3), sg.PI(faithful=True, iterations=40)
    assert_close(root(A, many), sg.matrix_inv_sqrt(A))
    assert relative_error(gradient(lambda X: root(X, many), A, G), gradient(sg.matrix_inv_sqrt, A, G)) < 1e-10


def test_the_gradient_explodes_where_the_sound_form_stays_bounded():
    """What the papers show: with many close eigenvalues the last vectors are those of rounding error."""
    A = with_spectrum(torch.linspace(0.5, 1, 16).tolist())
    largest = {m: max(float(gradient(lambda X, m=m, s=s: root(X, m, s), A, symmetric_noise(16)).norm())
                      for s in range(40)) for m in (FAITHFUL, sg.PI())}  # fmt: skip
    assert largest[FAITHFUL] > 1e3 * largest[sg.PI()]


def test_eigh_returns_zeros_after_the_stop():
    torch.manual_seed(0)
    w, V = sg.eigh(torch.stack([with_spectrum((1e-6, 0.1, 1.0)), with_spectrum((0.01, 0.1, 1.0))]), method=FAITHFUL)
    assert_close(w, torch.tensor([[0, 0.1, 1], [0.01, 0.1, 1]], dtype=w.dtype), rtol=1e-6, atol=0)
    assert V[0, :, 0].eq(0).all()
    assert_close(V[1].mT @ V[1], torch.eye(3, dtype=w.dtype), rtol=0, atol=1e-6)


def test_every_call_draws_new_starts_and_a_seed_repeats_them():
    A = with_spectrum(CLOSE)
    first, again, other = root(A), root(A), sg.matrix_inv_sqrt(A, method=FAITHFUL)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with torch.no_grad():
        assert torch.equal(root(A), first)
    assert torch.equal(root(A.clone().requires_grad_()), first)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_odd_input(dtype):
    assert root(torch.zeros(0, 3, 3, dtype=dtype)).shape == (0, 3, 3)
    assert root(torch.zeros(2, 0, 0, dtype=dtype)).shape == (2, 0, 0)
    assert_close(root(torch.full((1, 1), 4.0, dtype=dtype)), torch.full((1, 1), 0.5, dtype=dtype))
    assert root(torch.zeros(3, 3, dtype=dtype)).eq(0).all()


def test_overflow_is_nan_as_in_the_released_loop():
    """Nothing is scaled and NaN does not end the deflation, so that a diverging training run is seen to fail."""
    A = with_spectrum((0.1, 0.5, 1.0)).float() * 1e25
    assert defined(A)[0].isnan().any()
    assert root(A).isnan().any()
    assert sg.matrix_inv_sqrt(A, method="pi").isfinite().all()


@pytest.mark.parametrize(("method", "size"), [("pi", 1e11), ("svd", 1e25)])
def test_layers_do_not_divide_large_features_for_the_released_baselines(method, size):
    """Where squares overflow the released layers fail, and the library's own forms do not."""
    released = {"pi": FAITHFUL, "svd": sg.Analytic(stop=1e-4)}[method]
    X = noise(64, 4, 5, 5).float()
    for kind, scale in product((method, released), (1.0, size)):
        layer = DecorrelatedBatchNorm2d(4, eps=1e-4, method=kind)
        fails = kind == released and scale == size
        try:
            assert layer(scale * X).isnan().any() == fails
        except sg.NonFiniteError:
            assert fails


def test_forward_mode_is_the_transpose_of_reverse_mode():
    A, E, G = with_spectrum(CLOSE), symmetric_noise(6), symmetric_noise(6, seed=2)
    _, tangent = torch.func.jvp(root, (A,), (E,))
    assert_close((tangent * G).sum(), (gradient(root, A, G) * E).sum())


def test_transforms_take_random_numbers_for_each_matrix():
    A = with_spectrum(CLOSE).expand(3, 6, 6)
    with pytest.raises(RuntimeError, match="random operation"):
        vmap(lambda X: sg.matrix_inv_sqrt(X, method=FAITHFUL))(A)
    each = vmap(lambda X: sg.matrix_inv_sqrt(X, method=FAITHFUL), randomness="different")(A)
    assert not torch.equal(each[0], each[1])


@pytest.mark.compiler  # its unrolled graph takes twenty seconds
def test_compiled_equals_eager():
    torch._dynamo.reset()
    A = with_spectrum(CLOSE).expand(3, 6, 6).clone().requires_grad_()
    compiled = torch.compile(
        lambda X: sg.matrix_inv_sqrt(X, method=FAITHFUL).sum(), fullgraph=True, backend="aot_eager"
    )
    torch.manual_seed(0)
    (g,) = torch.autograd.grad(compiled(A), A)
    assert_close(g, torch.autograd.grad(root(A).sum(), A)[0])


def test_a_layer_trains_with_it_and_takes_its_own_epsilon():
    layer = sg.nn.DecorrelatedBatchNorm2d(4, eps=0.01, method="pi:faithful=True", statistics="whitening")
    assert layer.method == sg.PI(faithful=True, eps=0.01)
    X = (random_orthogonal(4, seed=3).float() @ (torch.randn(4, 400) * torch.tensor([[8.0], [4.0], [2.0], [1.0]]))).T
    Y = layer(X.reshape(4, 10, 10, 4).permute(0, 3, 1, 2)).transpose(0, 1).flatten(1)
    assert_close(Y @ Y.T / 400, torch.eye(4), rtol=0, atol=0.05)
