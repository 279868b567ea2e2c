"""The layer before a spectral layer is found by where the data come from, not by a name."""

import copy

import pytest
import torch
from torch import nn

import spectralgrad as sg
from spectralgrad.nn import OrthogonalConv2d, SpectralModule
from spectralgrad.optim import pre_spectral_layers

from .small_networks import Whitening, conv_net, linear_net


class Branches(nn.Module):
    """Two convolutions, one of them far back, both feed the layer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.side = nn.Conv2d(4, 4, 1)
        self.white = Whitening()
        self.unrelated = nn.Conv2d(2, 4, 1)

    def forward(self, x):
        stem = torch.relu_(self.norm(self.stem(x)))
        return self.white(stem + self.side(stem)) + self.unrelated(x)


class Reducing(SpectralModule):
    """A spectral layer with a convolution of its own, as covariance pooling has."""

    def __init__(self):
        super().__init__()
        self.reduce = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        return sg.matrix_inv_sqrt(sg.covariance(self.reduce(x).flatten(2), eps=1.0))


def test_straight_networks():
    net = conv_net()
    assert pre_spectral_layers(net, torch.randn(2, 2, 8, 8)) == {"1": ("0", net[0])}
    twice = nn.Sequential(linear_net(), nn.Linear(3, 3, dtype=torch.float64), Whitening(), Whitening())
    found = pre_spectral_layers(twice, torch.randn(8, 6, dtype=torch.float64))
    assert {name: layer.name for name, layer in found.items()} == {"0.1": "0.0", "2": "1", "3": "1"}


def test_several_sources_are_listed_and_chosen_by_name():
    net, x = Branches(), torch.randn(2, 2, 5, 5)
    with pytest.raises(sg.SpectralError, match=r"2 layers feed the spectral layer 'white': side, stem\..*choose=") as e:
        pre_spectral_layers(net, x)
    assert "unrelated" not in str(e.value)
    assert pre_spectral_layers(net, x, choose={"white": "stem"})["white"].module is net.stem
    with pytest.raises(sg.SpectralError, match="'conv1'}, but the model has no layer of that name"):
        pre_spectral_layers(net, x, choose={"white": "conv1"})
    with pytest.raises(sg.SpectralError, match=r"keys of choose to be spectral layers \('white'\), got 'whit'"):
        pre_spectral_layers(net, x, choose={"whit": "stem"})


def test_a_layer_inside_the_spectral_layer_counts_first():
    net = nn.Sequential(nn.Conv2d(2, 4, 1), Reducing())
    assert pre_spectral_layers(net, torch.randn(2, 2, 6, 6))["1"].module is net[1].reduce


def test_orthogonal_and_frozen_layers_are_found_too():
    net = nn.Sequential(OrthogonalConv2d(2, 4), nn.AvgPool2d(2), Whitening())
    net.requires_grad_(False)
    assert pre_spectral_layers(net, torch.randn(2, 2, 6, 6))["2"].module is net[0]


def test_nothing_of_the_model_changes():
    net = Branches()
    net.side.eval()
    state, modes = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    random = torch.get_rng_state()
    pre_spectral_layers(net, torch.ones(2, 2, 5, 5), choose={"white": "stem"})
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    assert [m.training for m in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert all(p.grad is None for p in net.parameters())


def test_hooks_come_off_when_the_model_fails():
    net = conv_net()
    with pytest.raises(RuntimeError, match="channels"):
        pre_spectral_layers(net, torch.randn(2, 3, 8, 8))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert net.training


def test_what_cannot_be_found_is_said():
    with pytest.raises(sg.SpectralError, match=r"a model with a spectral layer .*got Linear without one"):
        pre_spectral_layers(nn.Linear(2, 2), torch.randn(2, 2))
    with pytest.raises(sg.SpectralError, match="no convolution or linear layer feeds the spectral layer '1'"):
        pre_spectral_layers(nn.Sequential(nn.ReLU(), Whitening()), torch.randn(4, 2))

    class Skipping(nn.Sequential):
        def forward(self, x):
            return self[0](x)

    with pytest.raises(sg.SpectralError, match="did not pass through the spectral layer '1'"):
        pre_spectral_layers(Skipping(nn.Linear(2, 2), Whitening()), torch.randn(4, 2))


def test_wrappers_are_looked_through():
    net = linear_net()
    wrapped = nn.DataParallel(net)  # names then start with "module.", which the released code missed (claim O29)
    assert pre_spectral_layers(wrapped, torch.randn(8, 6, dtype=torch.float64))["1"].module is net[0]


def test_a_part_that_is_called_module_is_no_wrapper():
    class Headed(nn.Module):
        def __init__(self):
            super().__init__()
            self.module, self.white = nn.Linear(4, 4), Whitening()

        def forward(self, x):
            return self.white(self.module(x))

    assert pre_spectral_layers(Headed(), torch.randn(8, 4))["white"].name == "module"


def test_the_found_layers_go_straight_into_a_treatment():
    net = conv_net()
    found = pre_spectral_layers(net, torch.randn(2, 2, 8, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for chosen in (found, found.values(), found["1"], [layer.module for layer in found.values()]):
        nog = sg.optim.NearestOrthogonalGradient(optimizer, chosen)
        assert [t.parameter is net[0].weight for t in nog.targets] == [True]
        nog.remove()
