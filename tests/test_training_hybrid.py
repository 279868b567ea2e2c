"""The hybrid protocol: which method and which rate at which epoch, and the same after any resume."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    SequentialLR,
)

import spectralgrad as sg
from spectralgrad.training import HybridSwitch

from .small_networks import Projecting, Whitening, backward, batch, linear_net

EPOCHS = 9


def start(milestones=(3, 6), **options):
    net = linear_net(method="exact")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = MultiStepLR(optimizer, list(milestones))
    return net, optimizer, scheduler, HybridSwitch(net, scheduler, **options)


def run(net, optimizer, scheduler, switch, epochs):
    """One batch an epoch; what was in force."""
    seen = []
    for epoch in epochs:
        optimizer.zero_grad()
        backward(net, epoch)
        seen.append((net[1].method.name, round(optimizer.param_groups[0]["lr"], 6)))
        optimizer.step()
        scheduler.step()
        switch.step()
    return seen


NS, SVD = "newton-schulz", "svd-pade"


@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_the_protocol(warmup):
    seen = run(*start(warmup_epochs=warmup), range(EPOCHS))
    rates = [0.1] * 3 + [0.01] * 3 + [0.001] * 3
    names = [NS] * (6 - warmup) + [SVD] * (3 + warmup)
    assert seen == list(zip(names, rates, strict=True))


def test_the_decay_can_be_put_off_instead():
    net, optimizer, scheduler, switch = start(warmup_epochs=2, postpone=True)
    assert (switch.switch_epoch, switch.decay_epoch) == (6, 8)
    seen = run(net, optimizer, scheduler, switch, range(EPOCHS))
    assert seen == list(zip([NS] * 6 + [SVD] * 3, [0.1] * 3 + [0.01] * 5 + [0.001], strict=True))


@pytest.mark.parametrize("postpone", [False, True])
@pytest.mark.parametrize("stop", range(EPOCHS))
@pytest.mark.parametrize("scheduler_first", [False, True])
def test_a_run_resumed_at_any_epoch_is_the_same_run(stop, postpone, scheduler_first, tmp_path):
    through = start(warmup_epochs=1, postpone=postpone)
    seen = run(*through, range(EPOCHS))
    parts = start(warmup_epochs=1, postpone=postpone)
    before = run(*parts, range(stop))
    torch.save([part.state_dict() for part in parts], tmp_path / "run.pt")
    states = torch.load(tmp_path / "run.pt", weights_only=True)
    net = linear_net(method="exact")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = MultiStepLR(optimizer, [3, 6])
    net.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    if scheduler_first:
        scheduler.load_state_dict(states[2])
    switch = HybridSwitch(net, scheduler, warmup_epochs=1, postpone=postpone)
    switch.load_state_dict(states[3])
    if not scheduler_first:
        scheduler.load_state_dict(states[2])
    after = run(net, optimizer, scheduler, switch, range(stop, EPOCHS))
    assert before + after == seen
    for x, y in zip(through[0].parameters(), net.parameters(), strict=True):
        assert torch.equal(x, y)


def test_the_optimiser_keeps_its_state():
    net, optimizer, scheduler, switch = start(milestones=(1,), warmup_epochs=1)
    assert switch.switched  # from epoch 0 on
    net, optimizer, scheduler, switch = start(milestones=(2,), warmup_epochs=1)
    backward(net)
    optimizer.step()
    kept = optimizer.state[net[0].weight]["momentum_buffer"].clone()
    scheduler.step()
    switch.step()
    assert net[1].method.name == SVD
    assert torch.equal(optimizer.state[net[0].weight]["momentum_buffer"], kept)


def test_by_hand():
    net = linear_net()
    switch = HybridSwitch(net, decay_epoch=4, warmup_epochs=2, method=sg.Taylor(degree=19), first="svd-clip")
    names = []
    for _ in range(5):
        names.append(net[1].method.name)
        switch.step()
    assert names == ["svd-clip"] * 2 + ["svd-taylor"] * 3
    assert net[1].method.degree == 19
    switch.step(1)
    assert net[1].method.name == "svd-clip"
    assert repr(switch) == "HybridSwitch(epoch 1, 1 layers by svd-clip; switch at 2, last decay at 4)"


def optimiser():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


def test_schedulers_inside_schedulers():
    net = linear_net()
    o = optimiser()
    warm = LinearLR(o, total_iters=5)
    sequence = SequentialLR(o, [warm, MultiStepLR(o, [10, 20])], milestones=[5])
    assert HybridSwitch(net, sequence, warmup_epochs=1).switch_epoch == 24
    chain = ChainedScheduler([ExponentialLR(o, 0.99), MultiStepLR(o, [10, 20])])
    assert HybridSwitch(net, chain, warmup_epochs=1).switch_epoch == 19
    o = optimiser()
    sequence = SequentialLR(o, [LinearLR(o, start_factor=1.0, total_iters=2), MultiStepLR(o, [2, 4])], milestones=[2])
    switch = HybridSwitch(net, sequence, warmup_epochs=1)
    for epoch in range(8):
        decayed = o.param_groups[0]["lr"] < 0.1 * 0.01 * 1.5
        assert (net[1].method.name == SVD) == (epoch >= 5)
        assert decayed == (epoch >= 6)
        o.step()
        sequence.step()
        switch.step()


def test_chained_schedulers_that_decay_together_are_put_off_together():
    net, o = linear_net(), optimiser()
    chain = ChainedScheduler([MultiStepLR(o, [2, 4]), MultiStepLR(o, [3, 4], gamma=0.5)])
    switch = HybridSwitch(net, chain, warmup_epochs=2, postpone=True)
    assert (switch.switch_epoch, switch.decay_epoch) == (4, 6)
    rates = []
    for _ in range(8):
        rates.append(round(o.param_groups[0]["lr"], 9))
        o.step()
        chain.step()
        switch.step()
    assert rates == [0.1, 0.1, 0.01, 0.005, 0.005, 0.005, 0.00025, 0.00025]


def test_layers_that_cannot_be_switched_are_named():
    net = nn.Sequential(Whitening(), Projecting())
    with pytest.warns(UserWarning, match=r"leaves 1 layers.*'1': method 'newton-schulz' is not available for eigh"):
        switch = HybridSwitch(net, decay_epoch=3)
    assert list(switch.layers) == ["0"]
    assert net[1].method.name == "svd-pade"
    with pytest.raises(
        sg.MethodError, match="no layer can be switched; method 'newton-schulz' is not available for eigh"
    ):
        HybridSwitch(nn.Sequential(Projecting()), decay_epoch=3)


def test_bad_requests_say_what_is_wanted():
    net = linear_net()
    with pytest.raises(sg.SpectralError, match="exactly one of scheduler and decay_epoch, got neither"):
        HybridSwitch(net)
    with pytest.raises(sg.SpectralError, match=r"MultiStepLR with milestones.* got CosineAnnealingLR.*decay_epoch"):
        HybridSwitch(net, CosineAnnealingLR(optimiser(), 10))
    with pytest.raises(sg.SpectralError, match="warmup_epochs ≤ 2, the decay_epoch, got 3"):
        HybridSwitch(net, decay_epoch=2, warmup_epochs=3)
    with pytest.raises(sg.SpectralError, match="warmup_epochs to be an integer ≥ 0"):
        HybridSwitch(net, decay_epoch=2, warmup_epochs=-1)
    with pytest.raises(sg.SpectralError, match=r"a model with a spectral layer .*got Linear without one"):
        HybridSwitch(nn.Linear(2, 2), decay_epoch=2)
    with pytest.raises(sg.MethodError, match="unknown method 'svd-best'"):
        HybridSwitch(net, decay_epoch=2, method="svd-best")
    with pytest.raises(sg.SpectralError, match=r"HybridSwitch.state_dict\(\), got one without epoch"):
        HybridSwitch(net, decay_epoch=2).load_state_dict({"switch_epoch": 1, "decay_epoch": 2})


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's own, after a graph break
def test_a_compiled_model_is_switched():
    net = linear_net(method="exact")
    x, _ = batch(0)
    expected = {name: linear_net(method=name)(x) for name in (NS, SVD)}
    switch = HybridSwitch(net, decay_epoch=2, warmup_epochs=1)
    compiled = torch.compile(net, backend="eager")
    for name in (NS, SVD):
        torch.testing.assert_close(compiled(x), expected[name])
        switch.step()
    assert not torch.allclose(expected[NS], expected[SVD])


def test_every_change_of_a_method_is_logged_also_the_first(caplog):
    """Making a switch replaces the method that the layers were made with."""
    with caplog.at_level("INFO", logger="spectralgrad"):
        net, optimizer, scheduler, switch = start(method="svd-pade", warmup_epochs=1)
        made = [record.getMessage() for record in caplog.records]
        run(net, optimizer, scheduler, switch, range(EPOCHS))
    later = [record.getMessage() for record in caplog.records][len(made) :]
    assert made == ["HybridSwitch sets the method of layers for epoch 0: 1: exact → newton-schulz"]
    assert len(later) == 1
    assert later[0].startswith("HybridSwitch sets the method of layers for epoch 5: 1: newton-schulz")
    assert "svd-pade" in later[0]
    assert {record.levelname for record in caplog.records} == {"INFO"}
