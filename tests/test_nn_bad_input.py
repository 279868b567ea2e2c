"""Layers refuse what makes no sense: what came, what is wanted, where."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import spectralgrad as sg
from spectralgrad.diagnostics.every_layer import LAYERS, RUNNING, STATELESS, layer_and_input
from spectralgrad.nn import functional

NAN = float("nan")


def named(layer, name="stem.norm"):
    layer.name = name
    return layer


@pytest.mark.parametrize(
    ("kind", "shape", "wanted"),
    [
        (sg.nn.DecorrelatedBatchNorm1d, (2, 4, 3, 3), "2D or 3D"),
        (sg.nn.DecorrelatedBatchNorm2d, (2, 4), "4D"),
        (sg.nn.DecorrelatedBatchNorm3d, (2, 4, 3, 3), "5D"),
        (sg.nn.PCADenoising1d, (4,), "2D or 3D"),
        (sg.nn.PCADenoising2d, (2, 4, 3), "4D"),
    ],
    ids=str,
)
def test_wrong_dimension(kind, shape, wanted):
    with pytest.raises(sg.ShapeError, match=rf"{kind.__name__} 'stem.norm': expected {wanted} input, got shape \("):
        named(kind(4))(torch.randn(shape))
    with pytest.raises(ValueError, match="expected"):  # as torch's layers do
        kind(4)(torch.randn(shape))


@pytest.mark.parametrize("kind", [sg.nn.DecorrelatedBatchNorm2d, sg.nn.PCADenoising2d])
def test_wrong_channels_types_and_too_few_values(kind):
    layer = named(kind(4))
    with pytest.raises(sg.ShapeError, match=r"'stem.norm': expected 4 channels, got shape \(2, 5, 3, 3\)"):
        layer(torch.randn(2, 5, 3, 3))
    with pytest.raises(sg.ShapeError, match=r"expected a real floating-point tensor, got torch.int64"):
        layer(torch.ones(2, 4, 3, 3, dtype=torch.long))
    with pytest.raises(sg.ShapeError, match=r"more than one value per channel in training, got shape \(1, 4, 1, 1\)"):
        layer(torch.randn(1, 4, 1, 1))
    with pytest.raises(sg.ShapeError, match="more than one value"):
        kind(4, sync=True)(torch.randn(1, 4, 1, 1))  # no process group: as one process
    layer.eval()(torch.randn(1, 4, 1, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 3}, "number of groups that divides the 4 channels, got groups=3"),
        ({"groups": 0}, "expected groups to be an integer ≥ 1, got 0"),
        ({"groups": 1.0}, "expected groups to be an integer, got 1.0"),
        ({"eps": -1.0}, "expected eps to be a finite number ≥ 0, got -1.0"),
        ({"eps": NAN}, "expected eps to be a number, got nan"),
        ({"statistics": "mean"}, "expected statistics to be 'covariance' or 'whitening', got 'mean'"),
        ({"whitening": "ica"}, "expected whitening to be 'zca' or 'pca' or 'cholesky', got 'ica'"),
        ({"init": "zeros"}, "expected init to be 'ones' or 'uniform', got 'zeros'"),
        ({"compute_dtype": torch.float16}, "expected compute_dtype torch.float32 or torch.float64, got torch.float16"),
        ({"method": "nonsense"}, "unknown method"),
        ({"whitening": "pca", "method": "exact"}, "is not available for eigh"),
        ({"whitening": "cholesky", "method": "svd-taylor"}, "its only method is 'exact', got 'svd-taylor'"),
    ],
    ids=str,
)
def test_settings_of_whitening(options, message):
    with pytest.raises((sg.ArgumentError, sg.MethodError), match=message):
        sg.nn.DecorrelatedBatchNorm2d(4, **options)


def test_a_method_that_does_not_fit_is_refused_on_the_live_layer_too():
    layer = sg.nn.DecorrelatedBatchNorm2d(4, whitening="cholesky")
    with pytest.raises(sg.MethodError, match="its only method is 'exact'"):
        layer.method = "svd-taylor"
    assert layer.method.name == "exact"


@pytest.mark.parametrize("keep", [0, 5, 0.0, 1.5, -1, True, "all", None])
def test_settings_of_denoising(keep):
    with pytest.raises(sg.ArgumentError, match=r"expected keep to be an integer (from 1 to 4 or a float|or a number)"):
        sg.nn.PCADenoising2d(4, keep=keep)


def test_denoising_keeps_at_most_the_channels_of_a_group():
    sg.nn.PCADenoising2d(4, keep=2, groups=2)
    with pytest.raises(sg.ArgumentError, match="expected keep to be an integer from 1 to 2"):
        sg.nn.PCADenoising2d(4, keep=3, groups=2)


@pytest.mark.parametrize("value", [NAN, float("inf")])
@pytest.mark.parametrize(
    "layer",
    [
        sg.nn.DecorrelatedBatchNorm2d(4, groups=2),
        sg.nn.DecorrelatedBatchNorm2d(4, groups=2, method="svd-taylor"),
        sg.nn.DecorrelatedBatchNorm2d(4, groups=2, whitening="pca"),
        sg.nn.DecorrelatedBatchNorm2d(4, groups=2, whitening="cholesky"),
        sg.nn.PCADenoising2d(4, groups=2),
        sg.nn.PCADenoising2d(4, 1.0, groups=2),
    ],
    ids=repr,
)
def test_non_finite_activations_name_layer_and_group_and_leave_the_statistics_alone(layer, value):
    X = torch.randn(3, 4, 2, 2)
    X[1, 2, 0, 0] = value
    before = layer.running_cov.clone()
    kind = type(layer).__name__
    with pytest.raises(sg.NonFiniteError, match=rf"{kind} 'stem.norm': expected finite input.*position 1 of a batch"):
        named(layer)(X)
    assert torch.equal(layer.running_cov, before)
    assert layer.num_batches_tracked == 0


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_named_in_errors_and_keeps_its_state(name):
    layer, X = layer_and_input(name)
    before = copy.deepcopy(layer.state_dict())
    X[-1, 2] = NAN
    with pytest.raises(sg.NonFiniteError, match=f"^{name.partition('-')[0]}: expected finite input") as caught:
        layer(X)
    assert caught.value.positions
    assert set(caught.value.positions) <= set(np.ndindex(*caught.value.batch_shape))
    assert_close(layer.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in {**RUNNING, **STATELESS} if "cholesky" not in name])
def test_layers_leave_the_search_for_nan_to_the_solver(name, monkeypatch):
    def scan(*_):
        raise AssertionError("the layer scans its matrices")

    for module in (functional.whitening_matrices, functional.coloring, functional.cross_covariance, sg.nn.base):
        monkeypatch.setattr(module, "check_finite", scan)
    layer, X = layer_and_input(name)
    layer(X)
    layer.eval()(X)


def test_errors_name_the_function_under_vmap_too():
    X = torch.randn(3, 2, 4, 5)
    X[2, 1, 0, 0] = NAN
    with pytest.raises(sg.NonFiniteError, match="whiten: expected finite input, got NaN or Inf in position"):
        torch.func.vmap(lambda x: functional.whiten(x, eps=0.1))(X)


def test_an_error_that_was_renamed_is_pickled_with_its_attributes():
    with pytest.raises(sg.NonFiniteError) as caught:
        functional.whiten(torch.full((2, 3, 4), NAN))
    twin = pickle.loads(pickle.dumps(caught.value))
    assert str(twin) == str(caught.value)
    assert str(twin).startswith("whiten: ")
    assert twin.positions == caught.value.positions == [(0, 0), (1, 0)]


def test_non_finite_running_statistics_are_reported_when_used():
    layer = named(sg.nn.DecorrelatedBatchNorm2d(4))
    layer.running_cov.fill_(NAN)
    layer.eval()
    with pytest.raises(sg.NonFiniteError, match=r"'stem.norm': expected finite input"):
        layer(torch.randn(2, 4, 3, 3))


def test_singular_covariances_under_cholesky():
    layer = named(sg.nn.DecorrelatedBatchNorm2d(4, whitening="cholesky", eps=0.0))
    with pytest.raises(sg.SpectralError, match=r"'stem.norm': expected positive definite.*Raise eps, or"):
        layer(torch.zeros(2, 4, 3, 3))


def test_pooling():
    with pytest.raises(sg.ShapeError, match=r"CovariancePooling: expected features \(N, 4, \*\), got shape \(2, 5, 3"):
        sg.nn.CovariancePooling(4)(torch.randn(2, 5, 3, 3))
    with pytest.raises(sg.ShapeError, match=r"expected features \(N, 4, \*\), got shape \(2, 4\)"):
        sg.nn.CovariancePooling(4)(torch.randn(2, 4))
    with pytest.raises(sg.ShapeError, match="expected at least one position"):
        functional.covariance_pooling(torch.randn(2, 4, 0))
    with pytest.raises(sg.ArgumentError, match=r"expected compute_dtype torch\.float32 or torch\.float64"):
        sg.nn.CovariancePooling(4, compute_dtype=torch.float16)
    with pytest.raises(sg.ArgumentError, match="expected reduce_to to be an integer ≥ 1, got 0"):
        sg.nn.CovariancePooling(4, reduce_to=0)
    with pytest.raises(sg.ArgumentError, match="expected power to be a number or 'log', got 'exp'"):
        sg.nn.CovariancePooling(4, power="exp")
    with pytest.raises(sg.ArgumentError, match="expected power to be a number or 'log', got nan"):
        sg.nn.CovariancePooling(4, power=NAN)
    with pytest.raises(sg.ArgumentError, match="CovariancePooling: expected eps to be a finite number ≥ 0, got -1"):
        sg.nn.CovariancePooling(4, eps=-1)
    with pytest.raises(sg.ArgumentError, match="WhiteningColoring2d: expected eps to be a finite number ≥ 0, got -1"):
        sg.nn.WhiteningColoring2d(eps=-1)
    with pytest.raises(sg.ArgumentError, match="expected output to be 'triangle' or 'full', got 'lower'"):
        sg.nn.CovariancePooling(4, output="lower")
    with pytest.raises(sg.MethodError, match="is not available for log"):
        sg.nn.CovariancePooling(4, power="log", method="newton-schulz")
    with pytest.raises(
        sg.ArgumentError, match=r"side='positions' requires method='exact' and eps=0, got method='exact' and eps=0.1"
    ):
        sg.nn.CovariancePooling(4, side="positions", eps=0.1)(torch.randn(2, 4, 3, 3))
    X = torch.randn(2, 4, 3, 3)
    X[1, 0, 0, 0] = NAN
    with pytest.raises(sg.NonFiniteError, match=r"CovariancePooling: expected finite input.* in position 1"):
        sg.nn.CovariancePooling(4)(X)


def test_whitening_and_colouring():
    layer, X = sg.nn.WhiteningColoring2d(groups=2), torch.randn(3, 4, 5, 5)
    with pytest.raises(sg.ShapeError, match=r"WhiteningColoring2d: expected 4D content .*, got shape \(3, 4, 5\)"):
        layer(X[..., 0], X)
    with pytest.raises(sg.ArgumentError, match="expected exactly one of style and matrix, got neither"):
        layer(X)
    with pytest.raises(sg.ArgumentError, match="expected exactly one of style and matrix, got both"):
        layer(X, X, matrix=torch.eye(2).expand(2, 2, 2))
    with pytest.raises(sg.ArgumentError, match="expected mean only together with matrix"):
        layer(X, X, mean=torch.zeros(4))
    with pytest.raises(
        sg.ShapeError, match=r"style features .* with 4 channels and 1 or 3 samples, got shape \(2, 4, 5, 5\)"
    ):
        layer(X, X[:2])
    with pytest.raises(sg.ShapeError, match=r"expected matrix of shape \(2, 2, 2\) or \(3, 2, 2, 2\), got \(1, 4, 4\)"):
        layer(X, matrix=torch.eye(4)[None])
    with pytest.raises(sg.ShapeError, match=r"expected mean of shape \(4,\) or \(3, 4\), got \(2,\)"):
        layer(X, matrix=torch.eye(2).expand(2, 2, 2), mean=torch.zeros(2))
    with pytest.raises(sg.ArgumentError, match="groups to be a divisor of the 4 channels, got 3"):
        functional.whiten(X, groups=3)
    with pytest.raises(sg.ArgumentError, match="expected groups to be an integer ≥ 1, got 0"):
        sg.nn.WhiteningColoring2d(groups=0)
    with pytest.raises(sg.NonFiniteError, match="WhiteningColoring2d: expected finite input"):
        layer(X, X * NAN)


def test_conversion():
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Sequential(nn.BatchNorm2d(6)))
    convert = sg.nn.convert_decorrelated_batchnorm
    with pytest.raises(sg.ArgumentError, match=r"got '7'; batch normalisation layers of the network: '1', '2.0'"):
        convert(net, ["1", "7"])
    with pytest.raises(
        sg.ArgumentError, match="at least one layer, got none; batch normalisation layers of the network: none"
    ):
        convert(nn.Linear(2, 2))
    with pytest.raises(sg.ArgumentError, match=r"got none; batch normalisation layers of the network: '1', '2.0'"):
        convert(net, lambda name, layer: False)
    with pytest.raises(sg.ArgumentError, match=r"layer '1': .*divides the 6 channels, got groups=4"):
        convert(net, "all", groups=4)
    assert isinstance(net[1], nn.BatchNorm2d)
