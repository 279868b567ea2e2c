"""NOG: its place in every kind of training step."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.optim import NearestOrthogonalGradient, nearest_orthogonal

from .small_networks import backward, batch, conv_net, linear_net
from .test_optim_nearest import reference

METHODS = ("svd", "gram")


def treated(net, optimizer, **options):
    return NearestOrthogonalGradient(optimizer, net[0], **options)


@pytest.mark.parametrize("method", METHODS)
def test_filters_are_matrices_and_other_gradients_stay(method):
    net = conv_net()
    backward(net, shape=(16, 2, 8, 8), dtype=torch.float32)
    before = {name: p.grad.clone() for name, p in net.named_parameters()}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    treated(net, optimizer, method=method)
    optimizer.step()
    for name, p in net.named_parameters():
        if name != "0.weight":
            assert torch.equal(p.grad, before[name])
    R = net[0].weight.grad.flatten(1)
    G = before["0.weight"].flatten(1)
    assert float((R.double() - reference(G)).norm()) < 1e-5 * float(torch.linalg.cond(G.double()))


def test_keep_norm_keeps_the_norm_that_clipping_left():
    net = linear_net()
    backward(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    treated(net, optimizer, keep_norm=True)
    nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    length = net[0].weight.grad.norm()
    direction = nearest_orthogonal(net[0].weight.grad)
    optimizer.step()
    assert_close(net[0].weight.grad.norm(), length, rtol=1e-14, atol=0)
    assert_close(net[0].weight.grad, direction * length / direction.norm(), rtol=1e-13, atol=1e-16)


def test_accumulated_gradients_are_treated_as_their_sum():
    one, two = linear_net(), linear_net()
    for net in (one, two):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if net is one:
            treated(net, optimizer)
        backward(net, seed=1)
        backward(net, seed=2)
        if net is two:
            net[0].weight.grad = reference(net[0].weight.grad)
        optimizer.step()
    assert_close(one[0].weight, two[0].weight, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW], ids=lambda f: f.__name__)
def test_a_grad_scaler_changes_nothing(make, fused, unscale):
    """Fused optimisers divide by the scale inside the step, after the hook."""
    nets = [linear_net(dtype=torch.float32) for _ in range(2)]
    for net, enabled in zip(nets, (True, False), strict=True):
        optimizer = make(net.parameters(), lr=0.1, fused=fused)
        treated(net, optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)
        for seed in range(2):
            optimizer.zero_grad()
            scaler.scale(_loss(net, seed)).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    for scaled, plain in zip(*(net.parameters() for net in nets), strict=True):
        assert_close(scaled, plain, rtol=1e-4, atol=1e-5)


def _loss(net, seed):
    x, y = batch(seed, dtype=torch.float32)
    return nn.functional.cross_entropy(net(x), y)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_scaler_skips_stays_skipped(fused):
    net = linear_net(dtype=torch.float32)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=fused)
    treated(net, optimizer)
    before = copy.deepcopy(net.state_dict())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(_loss(net, 0)).backward()
    net[0].weight.grad[0, 0] = torch.inf
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_a_gradient_that_is_not_finite_is_left_to_be_seen():
    net = linear_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    treated(net, optimizer)
    backward(net)
    net[0].weight.grad[1, 1] = torch.nan
    seen = net[0].weight.grad.clone()
    optimizer.step()
    assert torch.equal(net[0].weight.grad.isnan(), seen.isnan())
    assert torch.equal(net[0].weight.grad.nan_to_num(), seen.nan_to_num())


def test_a_closure_is_treated_after_it_has_run():
    by_closure, by_hand = linear_net(), linear_net()
    optimizer = torch.optim.SGD(by_closure.parameters(), lr=0.1)
    treated(by_closure, optimizer)
    for call in (lambda f: optimizer.step(f), lambda f: optimizer.step(closure=f)):

        def closure():
            optimizer.zero_grad()
            return backward(by_closure)

        assert float(call(closure)) > 0
    plain = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    treated(by_hand, plain)
    for _ in range(2):
        plain.zero_grad()
        backward(by_hand)
        plain.step()
    assert torch.equal(by_closure[0].weight, by_hand[0].weight)


def test_remove_leaves_nothing_behind():
    net, plain = linear_net(), linear_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    nog = treated(net, optimizer)
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    nog.remove()
    nog.remove()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    other = torch.optim.SGD(plain.parameters(), lr=0.1)
    for n, o in ((net, optimizer), (plain, other)):
        backward(n)
        o.step()
    assert torch.equal(net[0].weight, plain[0].weight)


def test_the_optimiser_can_be_saved_copied_and_collected():
    net = linear_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    treated(net, optimizer)
    assert not copy.deepcopy(optimizer)._optimizer_step_pre_hooks
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("parametrize", [parametrizations.orthogonal, parametrizations.spectral_norm])
def test_parametrised_weights(parametrize):
    net = linear_net()
    parametrize(net[0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    treated(net, optimizer)
    backward(net)
    original = net[0].parametrizations.weight.original
    G = original.grad.clone()
    optimizer.step()
    R = nearest_orthogonal(G, method="svd")
    assert_close(original.grad, R, rtol=1e-9, atol=1e-9)


def test_weights_of_several_tensors_are_asked_for():
    net = linear_net()
    parametrizations.weight_norm(net[0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with pytest.raises(sg.SpectralError, match=r"original0, original1.*parametrizations\.weight\.original1"):
        treated(net, optimizer)
    NearestOrthogonalGradient(optimizer, net[0].parametrizations.weight.original1)


def test_several_groups_and_several_layers():
    net = linear_net()
    groups = [{"params": [net[0].weight], "lr": 0.5}, {"params": net[3].parameters(), "lr": 0.1}]
    optimizer = torch.optim.SGD(groups)
    NearestOrthogonalGradient(optimizer, [net[0], net[3].weight, net[3]])
    backward(net)
    old = [net[0].weight.detach().clone(), net[3].weight.detach().clone()]
    optimizer.step()
    # cross-entropy's gradient in the last weight has rows that sum to zero, so its rank is 2 of 3
    expected = ([1.0] * 5, [1.0, 1.0, 0.0])
    for weight, before, lr, values in zip((net[0].weight, net[3].weight), old, (0.5, 0.1), expected, strict=True):
        step = (before - weight.detach()) / lr
        assert_close(torch.linalg.svdvals(step), torch.tensor(values, dtype=torch.float64), rtol=0, atol=1e-12)


def test_bad_requests_say_what_is_wanted():
    net = linear_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(sg.ShapeError, match=r"≥ 2 dimensions.*\(3,\)"):
        NearestOrthogonalGradient(optimizer, net[3].bias)
    with pytest.raises(sg.SpectralError, match="in none of its groups"):
        NearestOrthogonalGradient(optimizer, torch.zeros(3, 3))
    with pytest.raises(sg.SpectralError, match="got str; pass the object"):
        NearestOrthogonalGradient(optimizer, ["0.weight"])
    with pytest.raises(sg.SpectralError, match="at least one"):
        NearestOrthogonalGradient(optimizer, [])
    with pytest.raises(sg.SpectralError, match="a layer with a weight, got Tanh"):
        NearestOrthogonalGradient(optimizer, net[2])
    with pytest.raises(sg.MethodError, match="'svd' or 'gram' or 'polynomial'"):
        NearestOrthogonalGradient(optimizer, net[0], method="qr")
    with pytest.raises(sg.SpectralError, match="LBFGS"):
        NearestOrthogonalGradient(torch.optim.LBFGS(net.parameters()), net[0])
    with pytest.raises(sg.SpectralError, match=r"torch\.optim\.Optimizer, got Sequential"):
        NearestOrthogonalGradient(net, net[0])
    assert not optimizer._optimizer_step_pre_hooks


def test_sparse_gradients_are_refused():
    table = nn.Embedding(5, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    NearestOrthogonalGradient(optimizer, table)
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(sg.SpectralError, match="dense gradient"):
        optimizer.step()


def test_a_zero_gradient_stays_zero_when_the_norm_is_kept():
    W = torch.ones(2, 3, requires_grad=True)
    W.grad = torch.zeros(2, 3)
    optimizer = torch.optim.SGD([W], lr=0.1)
    sg.optim.NearestOrthogonalGradient(optimizer, W, keep_norm=True)
    optimizer.step()
    assert torch.equal(W.detach(), torch.ones(2, 3))
