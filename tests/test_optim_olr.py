"""OLR as the rate of one parameter under any optimiser and scheduler."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrizations
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.nn import OrthogonalConv2d
from spectralgrad.optim import ConditioningWarning, NearestOrthogonalGradient, OptimalLearningRate, optimal_rate

from .features import needs
from .small_networks import backward, linear_net
from .test_optim_rate import gaussian

OPTIMISERS = {
    "SGD": lambda params, **o: torch.optim.SGD(params, momentum=0.9, nesterov=True, weight_decay=5e-4, **o),
    "AdamW": lambda params, **o: torch.optim.AdamW(params, weight_decay=0.1, **o),
    "Muon": lambda params, **o: torch.optim.Muon(params, weight_decay=0.1, **o),
    "RMSprop": lambda params, **o: torch.optim.RMSprop(params, momentum=0.9, **o),
    "NAdam": lambda params, **o: torch.optim.NAdam(params, weight_decay=0.1, **o),
    "Adagrad": lambda params, **o: torch.optim.Adagrad(params, lr_decay=0.1, **o),
}
SCHEDULERS = {
    "MultiStepLR": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4], gamma=0.5),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.4, total_steps=6, cycle_momentum=False),
}


def matrix_net(seed=0):
    """Weights only, so that Muon takes all of it."""
    net = linear_net(seed)
    net[3] = torch.nn.Linear(5, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        net[3].weight.copy_(gaussian(3, 5, seed=9) / 3)
    return net


def by_hand(net, optimizer, seed, kind, nog=False):
    """What the paper says, with a group of its own for the parameter."""
    optimizer.zero_grad()
    backward(net, seed)
    W = net[0].weight
    if nog:
        U, _, Vh = np.linalg.svd(W.grad.numpy(), full_matrices=False)
        W.grad.copy_(torch.from_numpy(U @ Vh))
    lr = optimizer.param_groups[0]["lr"]
    w, g = W.detach().flatten().numpy(), W.grad.flatten().numpy()
    rate = (w @ w) * (g @ w) / ((w @ w) * (g @ g) + 2 * (g @ w) ** 2)
    if kind == "exact":
        rate = float(optimal_rate(W, W.grad, objective="exact", limit=lr))
    used = rate if 0 < rate < lr else lr
    optimizer.param_groups[0]["lr"] = used
    optimizer.step()
    optimizer.param_groups[0]["lr"] = lr
    return used


def grouped(net):
    return [{"params": [net[0].weight]}, {"params": [net[3].weight]}]


@pytest.mark.parametrize("name", [pytest.param(x, marks=needs("Muon")) if x == "Muon" else x for x in OPTIMISERS])
@pytest.mark.parametrize("schedule", SCHEDULERS)
@pytest.mark.parametrize(("kind", "nog"), [("paper", False), ("exact", False), ("paper", True)])
def test_it_is_a_group_with_that_rate(name, schedule, kind, nog):
    ours, theirs = matrix_net(), matrix_net()
    a, b = (OPTIMISERS[name](grouped(net), lr=0.4) for net in (ours, theirs))
    schedulers = [SCHEDULERS[schedule](o) for o in (a, b)]
    olr = OptimalLearningRate(a, ours[0], objective=kind)
    if nog:
        NearestOrthogonalGradient(a, ours[0])
    used = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConditioningWarning)
        for seed in range(5):
            a.zero_grad()
            backward(ours, seed)
            a.step()
            used.append(by_hand(theirs, b, seed, kind, nog))
            assert olr.rates[0] == pytest.approx(used[-1], rel=1e-6)
            for scheduler in schedulers:
                scheduler.step()
    for x, y in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(x, y, rtol=1e-6, atol=1e-7)
    assert len(set(used)) > 1


@pytest.mark.parametrize(
    "options", [{"foreach": True}, {"foreach": False}, {"fused": True}, {"maximize": True}], ids=str
)
def test_implementations_of_one_optimiser_agree(options):
    nets = [matrix_net() for _ in range(2)]
    for net, extra in zip(nets, (options, {"maximize": options.get("maximize", False)}), strict=True):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9, **extra)
        OptimalLearningRate(optimizer, net[0])
        for seed in range(3):
            optimizer.zero_grad()
            backward(net, seed)
            optimizer.step()
    assert_close(nets[0][0].weight, nets[1][0].weight, rtol=1e-12, atol=1e-12)


def test_maximising_turns_the_gradient_round():
    W = torch.eye(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([W], lr=0.5, maximize=True)
    olr = OptimalLearningRate(optimizer, W)
    W.grad = -2 * W.detach()
    optimizer.step()
    assert olr.rates == [pytest.approx(1 / 6)]
    assert_close(W.detach(), torch.eye(3, dtype=torch.float64) * 2 / 3)


def test_the_direction_of_the_update_includes_momentum_and_decay():
    net = matrix_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9, weight_decay=0.1)
    olr = OptimalLearningRate(optimizer, net[0], direction="update", objective="exact")
    twin = copy.deepcopy(net)
    plain = torch.optim.SGD(twin.parameters(), lr=0.4, momentum=0.9, weight_decay=0.1)
    for seed in range(4):
        twin.load_state_dict(net.state_dict())
        W = twin[0].weight.detach().clone()
        for n, o in ((net, optimizer), (twin, plain)):
            o.zero_grad()
            backward(n, seed)
            o.step()
        D = (W - twin[0].weight.detach()) / 0.4
        rate = float(optimal_rate(W, D, objective="exact", limit=0.4))
        assert olr.rates[0] == pytest.approx(rate, rel=1e-9)
        assert_close(net[0].weight.detach(), W - rate * D, rtol=1e-12, atol=1e-12)


def test_other_parameters_and_the_saved_state_are_those_of_the_plain_optimiser():
    net, twin = matrix_net(), matrix_net()
    a, b = (torch.optim.AdamW(n.parameters(), lr=0.4) for n in (net, twin))
    OptimalLearningRate(a, net[0])
    for n, o in ((net, a), (twin, b)):
        backward(n)
        o.step()
    assert torch.equal(net[3].weight, twin[3].weight)
    assert not torch.equal(net[0].weight, twin[0].weight)
    assert a.state_dict()["param_groups"] == b.state_dict()["param_groups"]
    assert_close(a.state_dict()["state"], b.state_dict()["state"])


@pytest.mark.parametrize("name", ["SGD", "AdamW", pytest.param("Muon", marks=needs("Muon"))])
def test_a_resumed_run_is_the_same_run(name, tmp_path):
    def start():
        net = matrix_net()
        optimizer = OPTIMISERS[name](net.parameters(), lr=0.4)
        scheduler = SCHEDULERS["MultiStepLR"](optimizer)
        OptimalLearningRate(optimizer, net[0], objective="exact")
        return net, optimizer, scheduler

    def run(net, optimizer, scheduler, seeds):
        for seed in seeds:
            optimizer.zero_grad()
            backward(net, seed)
            optimizer.step()
            scheduler.step()

    through = start()
    run(*through, range(6))
    first = start()
    run(*first, range(3))
    torch.save([part.state_dict() for part in first], tmp_path / "run.pt")
    second = start()
    for part, state in zip(second, torch.load(tmp_path / "run.pt", weights_only=True), strict=True):
        part.load_state_dict(state)
    run(*second, range(3, 6))
    for x, y in zip(through[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(x, y)


def test_the_order_of_attaching_does_not_matter():
    results = []
    for order in ((NearestOrthogonalGradient, OptimalLearningRate), (OptimalLearningRate, NearestOrthogonalGradient)):
        net = matrix_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.4)
        for treatment in order:
            treatment(optimizer, net[0])
        backward(net)
        with pytest.warns(ConditioningWarning, match="gradient is orthogonal and the weight is not"):
            optimizer.step()
        results.append(net[0].weight)
    assert torch.equal(*results)


def step_of(layer, treatments, shape):
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    for treatment in treatments:
        treatment(optimizer, layer)
    for _ in range(2):  # the second step must not warn again
        optimizer.zero_grad()
        layer(torch.ones(shape)).square().sum().backward()
        optimizer.step()


def test_only_combinations_that_work_against_each_other_warn():
    def orthogonal():
        return parametrizations.orthogonal(torch.nn.Linear(4, 4))

    both = (OptimalLearningRate, NearestOrthogonalGradient)
    step_of(torch.nn.Linear(4, 4), (OptimalLearningRate,), (2, 4))
    step_of(orthogonal(), both, (2, 4))
    step_of(OrthogonalConv2d(2, 2), both, (1, 2, 4, 4))
    step_of(orthogonal(), (NearestOrthogonalGradient,), (2, 4))
    with pytest.warns(ConditioningWarning, match="the weight is orthogonal and the gradient is not") as caught:
        step_of(orthogonal(), (OptimalLearningRate,), (2, 4))
    assert len(caught) == 1
    assert "20.61 %" in str(caught[0].message)
    with pytest.warns(ConditioningWarning, match="Use an orthogonal weight as well"):
        step_of(torch.nn.Linear(4, 4), both, (2, 4))


@pytest.mark.parametrize("fused", [False, True])
def test_a_grad_scaler_changes_nothing(fused):
    nets = [linear_net(dtype=torch.float32) for _ in range(2)]
    rates = []
    for net, enabled in zip(nets, (True, False), strict=True):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.4, fused=fused)
        olr = OptimalLearningRate(optimizer, net[0])
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)
        for seed in range(3):
            optimizer.zero_grad()
            x = torch.randn(32, 6, generator=torch.Generator().manual_seed(seed))
            scaler.scale(net(x).square().sum(1).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            rates.append(olr.rates[0])
    assert rates[:3] == pytest.approx(rates[3:], rel=1e-4)
    assert_close(nets[0][0].weight, nets[1][0].weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_step_moves_nothing(fused):
    net = linear_net(dtype=torch.float32)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.4, fused=fused)
    OptimalLearningRate(optimizer, net[0], objective="exact")
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(net(torch.randn(8, 6)).sum()).backward()
    net[0].weight.grad[0, 0] = torch.nan
    before = net[0].weight.detach().clone()
    scaler.step(optimizer)
    assert torch.equal(net[0].weight, before)


def test_a_step_in_bfloat16_is_right_to_its_rounding():
    W = gaussian(4, 4).to(torch.bfloat16).requires_grad_()
    optimizer = torch.optim.SGD([W], lr=0.5)
    OptimalLearningRate(optimizer, W)
    W.grad = 2 * W.detach()
    expected = W.detach().float() * 2 / 3
    optimizer.step()
    assert float(((W.detach().float() - expected) / expected).abs().max()) < 2 * torch.finfo(torch.bfloat16).eps


def test_bad_requests_say_what_is_wanted():
    net = matrix_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(sg.ArgumentError, match="'paper' or 'exact', got 'best'"):
        OptimalLearningRate(optimizer, net[0], objective="best")
    with pytest.raises(sg.ArgumentError, match="'gradient' or 'update', got 'momentum'"):
        OptimalLearningRate(optimizer, net[0], direction="momentum")
    with pytest.raises(sg.ArgumentError, match="'paper' or 'exact'"):
        optimal_rate(net[0].weight, net[0].weight, objective="best")
    with pytest.raises(sg.ShapeError, match=r"\(5, 6\) of torch.float64 and \(3, 5\)"):
        optimal_rate(net[0].weight, net[3].weight)
    with pytest.raises(sg.SpectralError, match="curvature"):
        OptimalLearningRate(torch.optim.LBFGS(net.parameters()), net[0])


def test_a_parameter_without_gradient_or_rate_is_passed_over():
    net = matrix_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    olr = OptimalLearningRate(optimizer, [net[0], net[3]])
    optimizer.step()
    assert olr.rates == [None, None]
    backward(net)
    before = net[0].weight.detach().clone()
    optimizer.step()
    assert torch.equal(net[0].weight, before)


@pytest.mark.parametrize("treatment", [NearestOrthogonalGradient, OptimalLearningRate])
def test_a_parameter_is_treated_once(treatment):
    net = matrix_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    first = treatment(optimizer, net[0])
    with pytest.raises(sg.SpectralError, match=r"shape \(5, 6\) is already treated"):
        treatment(optimizer, [net[3], net[0]])
    first.remove()
    treatment(optimizer, [net[3], net[0]])
    assert len(optimizer._optimizer_step_pre_hooks) == 1


@pytest.mark.parametrize("make", [OPTIMISERS["SGD"], OPTIMISERS["AdamW"]], ids=["SGD", "AdamW"])
def test_mixed_precision_training_learns_with_both(make):
    """bfloat16 autocast and a scaler; NOG, OLR and an orthogonal weight together."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(OrthogonalConv2d(1, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 2))
    optimizer = make(net.parameters(), lr=0.02)
    OptimalLearningRate(optimizer, net[0])
    NearestOrthogonalGradient(optimizer, net[0])
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    x = gaussian(64, 1, 4, 4).float()
    y = (x.sum((1, 2, 3)) > 0).long()
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("direction", ["gradient", "update"])
def test_the_two_directions_have_rates_of_their_own(direction):
    """Weight decay turns a gradient that shrinks one singular value into an update that shrinks both."""
    W = torch.nn.Parameter(2 * torch.eye(2, dtype=torch.float64))
    old, G = W.detach().clone(), torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    optimizer = torch.optim.SGD([W], lr=2.0, weight_decay=0.5)
    olr = OptimalLearningRate(optimizer, W, objective="exact", direction=direction)
    W.grad = G.clone()
    optimizer.step()
    directions = {"gradient": G, "update": G + old / 2}
    rates = {name: float(optimal_rate(old, D, objective="exact")) for name, D in directions.items()}
    assert 0 < 1.1 * rates["gradient"] < rates["update"] < 2
    assert olr.rates[0] == pytest.approx(rates[direction], rel=1e-9)


@pytest.mark.parametrize(("lr", "gradient"), [(0.1, None), (0.0, torch.ones(2, 2))])
@pytest.mark.parametrize("direction", ["gradient", "update"])
def test_without_gradient_or_without_rate_there_is_nothing_to_find(direction, lr, gradient):
    W = torch.nn.Parameter(2 * torch.eye(2))
    W.grad = gradient
    optimizer = torch.optim.SGD([W], lr=lr)
    olr = OptimalLearningRate(optimizer, W, direction=direction)
    optimizer.step()
    assert olr.rates == [None]
    assert torch.equal(W.detach(), 2 * torch.eye(2))


class Failing(torch.optim.Optimizer):
    """Fails where there is a gradient, and does nothing elsewhere."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 100.0})

    def step(self, closure=None):
        if self.param_groups[0]["params"][0].grad is not None:
            raise ValueError("no step")


def test_a_step_that_failed_leaves_nothing_behind():
    """The weights of before it are forgotten, so that a later step without a gradient does not restore them."""
    W = torch.nn.Parameter(2 * torch.eye(2))
    optimizer = Failing([W])
    OptimalLearningRate(optimizer, W)
    W.grad = W.detach().clone()
    with pytest.raises(ValueError, match="no step"):
        optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        W.fill_(3.0)
    optimizer.step()
    assert bool((W == 3).all())
