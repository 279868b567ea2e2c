"""The whitening loss: its formula, invariances, sub-batches, few samples, gradients and bad input."""

import pickle

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn import WhiteningMSELoss
from spectralgrad.nn.functional import whitening_mse

from .helpers import REAL, unit

DOUBLE = torch.float64


def views(n=40, d=6, count=2, dtype=DOUBLE, seed=0, noise=0.3):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, d, dtype=DOUBLE, generator=generator) @ torch.randn(d, d, dtype=DOUBLE, generator=generator)
    return (z + noise * torch.randn(count, n, d, dtype=DOUBLE, generator=generator) + 1).to(dtype)


def by_the_book(parts, eps=0.0):
    """W-MSE of views (n, d) by Cholesky whitening and cosines, with the covariance and the ε of the authors' code."""
    white = []
    for z in parts:
        centred, identity = z - z.mean(0), torch.eye(z.shape[1], dtype=z.dtype)
        L = torch.linalg.cholesky((1 - eps) * centred.mT @ centred / (len(z) - 1) + eps * identity)
        white.append(torch.linalg.solve_triangular(L, centred.mT, upper=False).mT)
    cosines = [
        torch.nn.functional.cosine_similarity(white[i], white[j]).mean()
        for i in range(len(white))
        for j in range(i + 1, len(white))
    ]
    return 2 - 2 * torch.stack(cosines).mean()


@pytest.mark.parametrize("count", [2, 3])
def test_formula_of_the_paper(count):
    z = views(count=count).requires_grad_()
    found, expected = whitening_mse(z), by_the_book(z.unbind())
    assert_close(found, expected)
    assert_close(torch.autograd.grad(found, z)[0], torch.autograd.grad(expected, z)[0])
    assert_close(whitening_mse(list(z)), found)
    assert_close(WhiteningMSELoss()(z), found)


def test_the_eps_of_the_authors_code():
    z, n, eps = views(), 40, 0.1
    assert_close(whitening_mse(z, eps=(n - 1) / n * eps / (1 - eps)), by_the_book(z.unbind(), eps))


def test_defaults_are_those_of_the_authors_code():
    text = "WhiteningMSELoss(sub_batch=128, iterations=1, eps=0.0, whitening='cholesky', method='exact')"
    assert repr(WhiteningMSELoss()) == text
    assert WhiteningMSELoss().normalize


def test_without_normalisation_it_is_the_mean_squared_error():
    z = views()
    white = sg.nn.functional.whiten(z.mT, eps=0.0, whitening="cholesky").mT
    assert_close(whitening_mse(z, normalize=False), torch.nn.functional.mse_loss(white[0], white[1]))


def test_sub_batches_are_a_partition_that_all_views_share():
    """23 samples in sub-batches of at least 7: three of them, of 8, 8 and 7 samples."""
    z = views(23, 4)
    loss = whitening_mse(z, sub_batch=7, generator=torch.Generator().manual_seed(5))
    order = torch.randperm(23, generator=torch.Generator().manual_seed(5))
    parts = order.split([8, 8, 7])
    assert_close(loss, sum(len(part) * by_the_book(z[:, part].unbind()) for part in parts) / 23)


def test_iterations_average_over_partitions():
    z, generator = views(24, 4), torch.Generator().manual_seed(1)
    expected = sum(whitening_mse(z, sub_batch=8, generator=generator) for _ in range(3)) / 3
    generator.manual_seed(1)
    assert_close(whitening_mse(z, sub_batch=8, iterations=3, generator=generator), expected)


@pytest.mark.parametrize("whitening", ["cholesky", "zca", "pca"])
def test_invariances(whitening):
    z = views()
    loss = whitening_mse(z, whitening=whitening)
    assert 0 < loss < 2
    moved = torch.stack([z[0] * 5 - 3, z[1] / 7 + 100])
    assert_close(whitening_mse(moved, whitening=whitening), loss)
    assert_close(whitening_mse(torch.stack([z[0], 5 * z[0] + 1]), whitening=whitening), torch.zeros((), dtype=DOUBLE))
    order = torch.randperm(40)
    assert_close(whitening_mse(z[:, order], whitening=whitening), loss)


@pytest.mark.parametrize("dtype", [*REAL, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(5, 12), (12, 12), (13, 12), (2, 3)], ids=str)
def test_few_samples(shape, dtype):
    """Range whitening makes any n samples corners of a simplex: only the rotation between the views is left."""
    z = views(*shape, dtype=dtype).requires_grad_()
    loss = whitening_mse(z, whitening="zca")
    (g,) = torch.autograd.grad(loss, z)
    assert loss.dtype == g.dtype == dtype
    assert bool(loss.isfinite())
    assert bool(g.isfinite().all())
    if dtype != torch.bfloat16:
        white = sg.nn.functional.whiten(z.detach().double().mT, eps=0.0).mT
        cosine = torch.nn.functional.cosine_similarity(white[0], white[1], dim=-1)
        assert_close(loss.double(), 2 - 2 * cosine.mean(), rtol=0, atol=1e3 * unit(dtype))


def test_collapsed_views_have_a_finite_gradient():
    """All embeddings equal: nothing can be whitened, and no sample has a direction."""
    z = torch.ones(2, 5, 3, requires_grad=True)
    loss = whitening_mse(z, whitening="zca")
    assert loss == 0
    assert torch.equal(torch.autograd.grad(loss, z)[0], torch.zeros_like(z))


@pytest.mark.parametrize(
    ("whitening", "shape"), [("cholesky", (9, 3)), ("zca", (9, 3)), ("zca", (4, 6)), ("pca", (9, 3))]
)
def test_derivatives_and_transforms(whitening, shape):
    z = views(*shape).requires_grad_()
    f = lambda z: whitening_mse(z, whitening=whitening)  # noqa: E731
    assert gradcheck(f, (z,), check_forward_ad=True)
    assert gradgradcheck(f, (z,), fast_mode=True)
    batch = torch.stack([views(*shape, seed=s) for s in range(2)])
    assert_close(vmap(grad(f))(batch), torch.stack([grad(f)(x) for x in batch]))
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    assert_close(torch.autograd.grad(compiled(z), z), torch.autograd.grad(f(z), z))


def test_training_aligns_two_views_without_collapse():
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    net, loss = torch.nn.Linear(16, 4), WhiteningMSELoss(sub_batch=64)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    values = []
    for _ in range(60):
        noisy = [torch.cat([x, 2 * torch.randn_like(x)], 1) for _ in range(2)]  # the second half differs between views
        value = loss([net(view) for view in noisy])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.25 * values[0]
    assert torch.linalg.matrix_rank(net.weight) == 4


def test_module():
    loss = WhiteningMSELoss(32, iterations=2, eps=1e-3, whitening="zca", method="svd-taylor")
    text = "WhiteningMSELoss(sub_batch=32, iterations=2, eps=0.001, whitening='zca', method='svd-taylor')"
    assert repr(loss) == text
    assert repr(pickle.loads(pickle.dumps(loss))) == text
    assert loss.state_dict() == {}
    seen = []
    loss.register_spectral_hook(lambda layer, matrices: seen.append(matrices.shape))
    loss(views(64, 5))
    assert seen == [(4, 1, 5, 5)]  # two views of two sub-batches; the second iteration is not shown


def test_bad_input():
    z = views()
    for bad, message in (
        (z[:1], "at least two views"),
        ([z[0], z[1][:5]], "equal shape and dtype"),
        ([z[0], z[1].float()], "equal shape and dtype"),
        (z[0], "at least two views"),
        ([], "at least two views"),
        ((view for view in z), "a sequence with each item a torch.Tensor, got generator"),
        (z.long(), "real floating-point"),
    ):
        with pytest.raises(sg.ShapeError, match=f"WhiteningMSELoss: .*{message}"):
            WhiteningMSELoss()(bad)
    with pytest.raises(sg.ArgumentError, match=r"more samples in a sub-batch than the 6 features .* got 4\. Use"):
        whitening_mse(z[:, :4])
    for options, message in (
        ({"sub_batch": 1}, "sub_batch to be an integer ≥ 2"),
        ({"iterations": 0}, "iterations to be an integer ≥ 1"),
    ):
        with pytest.raises(sg.ArgumentError, match=message):
            whitening_mse(z, **options)
    with pytest.raises(sg.ArgumentError, match="eps to be a finite number ≥ 0"):
        WhiteningMSELoss(eps=-1.0)
    with pytest.raises(sg.ArgumentError, match="expected whitening"):
        WhiteningMSELoss(whitening="none")
    z[1, 3, 2] = torch.nan
    with pytest.raises(sg.NonFiniteError, match="whitening_mse"):
        whitening_mse(z)
    assert whitening_mse(torch.zeros(2, 0, 3)) == 0
    with pytest.raises(sg.ArgumentError, match="eps to be a finite number ≥ 0"):
        whitening_mse(torch.zeros(2, 0, 3), eps=-1.0)
