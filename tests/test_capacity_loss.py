"""The MMCR loss: its formula, collapse, zero embeddings, any scale, half types, training and bad input."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn import MMCRLoss
from spectralgrad.nn.functional import mmcr_loss

from .helpers import noise


def by_the_book(z, compression, normalize=True):
    """The loss of views (V, n, d) as in public code: torch's normalisation and singular values."""
    z = torch.nn.functional.normalize(z, dim=-1) if normalize else z
    local = torch.linalg.svdvals(z.transpose(0, 1)).sum(-1).mean()
    return compression * local - torch.linalg.svdvals(z.mean(0)).sum()


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("compression", [0.0, 0.005, 2.0])
def test_formula(compression, normalize):
    z = noise(3, 12, 5).requires_grad_()
    found = mmcr_loss(z, compression=compression, normalize=normalize)
    expected = by_the_book(z, compression, normalize)
    assert_close(found, expected)
    assert_close(torch.autograd.grad(found, z)[0], torch.autograd.grad(expected, z)[0])
    assert_close(MMCRLoss(compression, normalize=normalize)(list(z)), found)


def test_derivatives_and_transforms():
    z = noise(2, 5, 4).requires_grad_()
    f = lambda z: mmcr_loss(z, compression=0.3)  # noqa: E731
    assert gradcheck(f, (z,), check_forward_ad=True)
    assert gradgradcheck(f, (z,))
    several = noise(3, 2, 5, 4, seed=1)
    assert_close(vmap(grad(f))(several), torch.stack([grad(f)(x) for x in several]))


def test_collapsed_equal_and_zero_embeddings():
    """Torch's gradient of ‖C‖ is one choice of vectors there; ours the polar factor on the range, and finite."""
    point = torch.ones(2, 6, 4, dtype=torch.float64)
    gone = noise(2, 6, 4)
    gone[:, 2] = 0
    for z in (point, torch.zeros_like(point), gone, torch.eye(4, dtype=torch.float64).expand(2, 4, 4).clone()):
        z.requires_grad_()
        loss = mmcr_loss(z, compression=0.1)
        (g,) = torch.autograd.grad(loss, z)
        assert loss.isfinite()
        assert g.isfinite().all()
    one = torch.tensor(-(6**0.5), dtype=torch.float64)  # six embeddings in one direction
    assert_close(mmcr_loss(point), one)
    assert mmcr_loss(torch.zeros(2, 6, 4)) == 0


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_scale_of_the_embeddings_does_not_matter(scale):
    z = noise(2, 6, 4, dtype=torch.float32)
    assert_close(mmcr_loss(z * scale), mmcr_loss(z))
    leaf = (z * scale).requires_grad_()
    (g,) = torch.autograd.grad(mmcr_loss(leaf), leaf)
    assert_close(g * scale, grad(mmcr_loss)(z), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_single_precision(dtype):
    z = noise(2, 8, 4).to(dtype)
    found = mmcr_loss(z, compression=0.005)
    assert found.dtype == dtype
    assert_close(found, mmcr_loss(z.float(), compression=0.005).to(dtype))
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(mmcr_loss(z.float()), mmcr_loss(z.float()))


def test_training_from_collapse_reaches_the_optimum():
    """Embeddings that nearly coincide are driven apart until the centroids are orthogonal."""
    net, loss = torch.nn.Linear(8, 4), MMCRLoss()
    torch.manual_seed(0)
    x = torch.eye(8)[:4]
    with torch.no_grad():
        net.weight.copy_(1e-3 * torch.randn(4, 8))
        net.bias.fill_(1.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        loss([net(x), net(x + 0.01 * torch.randn_like(x))]).backward()
        optimizer.step()
    assert loss([net(x), net(x)]) < -3.99  # four orthogonal directions


def test_settings_and_bad_input():
    assert repr(MMCRLoss(0.1)) == "MMCRLoss(compression=0.1, normalize=True)"
    z = noise(2, 4, 3)
    for bad, message in ((z[:1], "two views"), (z[0], "two views"), ([z[0], z[1, :2]], "equal shape")):
        with pytest.raises(sg.ShapeError, match=f"MMCRLoss: .*{message}"):
            MMCRLoss()(bad)
    with pytest.raises(sg.ArgumentError, match="MMCRLoss: expected compression"):
        MMCRLoss(-1.0)
    z[1, 2, 0] = torch.nan
    with pytest.raises(sg.NonFiniteError, match="MMCRLoss"):
        MMCRLoss()(z)
    assert mmcr_loss(torch.zeros(2, 0, 3), compression=1.0) == 0
