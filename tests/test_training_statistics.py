"""renew_statistics recomputes running statistics for the current weights."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.training import renew_statistics


def pictures(count=4, seed=0, channels=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(16, channels, 8, 8, generator=generator) for _ in range(count)]


def net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False),
        sg.nn.DecorrelatedBatchNorm2d(12, eps=1e-2),
        nn.Dropout(0.5),
        nn.Conv2d(12, 4, 1),
        nn.BatchNorm2d(4),
    )


def spread(model, batch):
    """The largest standard deviation of a channel of the whitened features."""
    with torch.no_grad():
        return float(model[1](model[0](batch)).std((0, 2, 3)).max())


def test_torchs_layers_get_what_torch_gives_them():
    ours = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4))
    torchs = copy.deepcopy(ours)
    renew_statistics(ours, pictures())
    torch.optim.swa_utils.update_bn(pictures(), torchs)
    for mine, other in zip(ours.buffers(), torchs.buffers(), strict=True):
        assert_close(mine, other)


@pytest.mark.parametrize("statistics", ["covariance", "whitening"])
def test_evaluation_is_then_as_training_where_it_was_not(statistics):
    """Nine inputs, twelve channels: three directions are empty, and turn with the weights."""
    model = net()
    model[1] = sg.nn.DecorrelatedBatchNorm2d(12, eps=1e-2, statistics=statistics)
    for batch in pictures(30):
        model(batch)
    model[0].weight.data.add_(torch.randn(12, 1, 3, 3, generator=torch.Generator().manual_seed(3)), alpha=0.5)
    model(pictures(1, seed=50)[0])
    test = torch.cat(pictures(4, seed=99))
    model.eval()
    before = spread(model, test)
    renew_statistics(model, pictures(8, seed=7))
    after = spread(model, test)
    assert before > 2  # whitened features have deviation 1 at most
    assert 0.9 < after < 1.05


def test_batches_may_have_labels_and_go_elsewhere_first():
    model, seen = net(), []
    renew_statistics(model, [(batch, torch.zeros(16)) for batch in pictures(2)], lambda x: seen.append(model(x).shape))
    assert seen == [(16, 4, 8, 8)] * 2


def test_nothing_else_changes():
    model, seen = net(), []
    model[4].eval()
    model[3].weight.requires_grad_(False)
    model[1].register_spectral_hook(lambda *_: seen.append(1))
    state = {name: value.clone() for name, value in model.named_parameters()}
    modes = [module.training for module in model.modules()]
    renew_statistics(model, pictures())
    assert [module.training for module in model.modules()] == modes
    assert (model[1].momentum, model[4].momentum) == (0.1, 0.1)
    assert int(model[1].num_batches_tracked) == 4
    assert not seen
    assert all(torch.equal(state[name], value) for name, value in model.named_parameters())
    model(pictures(1)[0])
    assert seen == [1]


def test_dropout_rests():
    first, second = net(), net()
    renew_statistics(first, pictures())
    torch.manual_seed(77)
    renew_statistics(second, pictures())
    assert_close(first[4].running_var, second[4].running_var, rtol=0, atol=0)


@pytest.mark.parametrize("trouble", ["nothing", "a wrong shape"])
def test_after_an_error_all_is_as_before(trouble):
    model = net()
    model(pictures(1)[0])
    model.eval()
    test = pictures(1, seed=9)[0]
    before, state = model(test), copy.deepcopy(model.state_dict())
    batches = [] if trouble == "nothing" else [*pictures(2), torch.randn(2, 3, 8, 8)]
    with pytest.raises(sg.SpectralError if trouble == "nothing" else RuntimeError):
        renew_statistics(model, batches)
    assert_close(model.state_dict(), state, rtol=0, atol=0)
    assert_close(model(test), before, rtol=0, atol=0)
    assert not model.training


def test_a_layer_without_statistics_is_left_alone():
    model = nn.Sequential(sg.nn.DecorrelatedBatchNorm2d(3, track_running_stats=False), nn.BatchNorm2d(3))
    renew_statistics(model, pictures(channels=3))
    assert int(model[1].num_batches_tracked) == 4
