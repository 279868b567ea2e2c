"""A spectral layer from outside the package: watched, named in errors, switched, copied and saved like the others."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import spectralgrad as sg


class Pooled(sg.nn.SpectralModule):
    """The square root of each sample's covariance (N, d, d) from features (N, d, n)."""

    operation = "sqrt"

    def forward(self, X):
        C = self.watched(sg.covariance(X, eps=1e-3))
        return sg.matrix_sqrt(C, method=self.method)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(3, 4, 1), Pooled(), nn.Flatten(), nn.Linear(16, 2)).double()


@pytest.fixture
def X():
    return torch.randn(5, 3, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_it_is_watched_in_training_only(net, X):
    with sg.diagnostics.Monitor(net, every=1) as monitor:
        net(X).square().sum().backward()
        net.eval()
        net(X).square().sum().backward()
    (record,) = monitor.records
    assert (record.layer, record.rank) == ("1", 4)
    assert record.gradient_norm > 0


def test_watching_changes_nothing(net, X):
    expected = torch.autograd.grad(net(X).square().sum(), net[0].weight)
    with sg.diagnostics.Monitor(net, every=1):
        assert_close(torch.autograd.grad(net(X).square().sum(), net[0].weight), expected, rtol=0, atol=0)


def test_hooks_see_the_matrices_and_their_gradient(net, X):
    seen, gradients = [], []
    handle = net[1].register_spectral_hook(lambda layer, M: seen.append((layer, M)) or gradients.append)
    net(X).square().sum().backward()
    handle.remove()
    net(X)
    ((layer, M),) = seen
    assert layer is net[1]
    assert_close(M, sg.covariance(net[0](X), eps=1e-3))
    assert gradients[0].shape == M.shape


def test_it_is_named_in_errors(net, X):
    X[3] = torch.nan
    with pytest.raises(sg.NonFiniteError, match="Pooled: expected finite input, got NaN or Inf in position 3"):
        net(X)
    net[1].name = "pooling"
    with pytest.raises(sg.NonFiniteError, match="Pooled 'pooling': expected finite"):
        net(X)


def test_it_is_switched(net, X):
    switch = sg.training.HybridSwitch(net, method="svd-taylor", decay_epoch=2)
    assert net[1].method == sg.NewtonSchulz()
    switch.step(1)
    assert net[1].method == sg.Taylor()
    with pytest.raises(sg.MethodError, match="unknown"):
        net[1].method = "unknown"


def test_it_is_copied_saved_and_compiled(net, X):
    with sg.diagnostics.Monitor(net, every=1) as monitor:
        twin = copy.deepcopy(net)
        twin(X)
        assert not monitor.records
    twin.load_state_dict(net.state_dict())
    assert_close(twin(X), net(X))
    assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(X), net(X))


def test_spectral_layers_are_found_in_order_and_shared_ones_once():
    layer, other = Pooled(), sg.nn.DecorrelatedBatchNorm1d(4)
    net = torch.nn.ModuleDict({"b": torch.nn.Sequential(torch.nn.ReLU(), layer), "a": other, "again": layer})
    assert sg.nn.spectral_layers(net) == {"b.1": layer, "a": other}
    assert list(sg.nn.spectral_layers(net)) == ["b.1", "a"]
    assert sg.nn.spectral_layers(layer) == {"": layer}
    assert sg.nn.spectral_layers(torch.nn.ReLU()) == {}
    with pytest.raises(
        sg.SpectralError, match=r"search: expected a model with a spectral layer .* got ReLU without one"
    ):
        sg.nn.spectral_layers(torch.nn.ReLU(), required_by="search")
