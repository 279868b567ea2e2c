"""The networks of the lab: as large as the papers', with the layer, the pooling and the weights asked for."""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import spectralgrad
from spectralgrad.errors import SpectralError
from spectralgrad.nn import (
    CovariancePooling,
    DecorrelatedBatchNorm2d,
    OrthogonalConv2d,
    PCADenoising2d,
    spectral_layers,
)
from spectralgrad.optim import pre_spectral_layers
from spectralgrad_lab.data import Batches, load
from spectralgrad_lab.networks import (
    NETWORKS,
    NetworkError,
    build,
    layers_before_spectral,
    pre_spectral,
    published_form,
)
from spectralgrad_lab.networks.blocks import BasicBlock, Bottleneck
from spectralgrad_lab.networks.conditioning import pooling_network
from spectralgrad_lab.networks.registry import _MAKERS
from spectralgrad_lab.networks.user_network import accepts
from spectralgrad_lab.networks.weight_constraints import constrain_weights

LARGE = ("alexnet", "resnet18", "resnet50", "resnet101")
SMALL = ("small", "resnet8")


@dataclass(frozen=True)
class Settings:
    network: str = "small"
    width: int | None = None
    layer: str = "batchnorm"
    group_size: int | None = None
    method: str | None = None
    eps: float | None = None
    statistics: str = "covariance"
    whitening: str = "zca"
    scale_init: str = "ones"
    spectral_precision: str = "float32"
    keep: float | int = 0.99
    pooling: str = "average"
    reduce_to: int | None = 256
    weights: str = "plain"
    power: float = 0.5
    normalize: bool = False
    form: str = "sound"


def made(classes: int = 10, channels: int = 3, size: int = 32, **settings) -> nn.Module:
    return build(Settings(**settings), channels, size, classes)


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def count(classes: int, size: int, **settings) -> int:
    with torch.device("meta"):
        return parameters(made(classes, size=size, **settings))


@pytest.mark.parametrize(
    ("network", "classes", "size", "wanted"),
    [
        ("resnet18-cifar", 10, 32, 11_173_962),
        ("resnet18-cifar", 100, 32, 11_220_132),
        ("resnet50-cifar", 10, 32, 23_520_842),
        ("resnet18", 1000, 224, 11_689_512),
        ("resnet50", 1000, 224, 25_557_032),
        ("resnet101", 1000, 224, 44_549_160),
        ("alexnet", 1000, 224, 61_100_840 + 2 * (64 + 192 + 384 + 256 + 256)),  # torchvision's, and normalisation
    ],
)
def test_parameters_are_as_many_as_published(network, classes, size, wanted):
    assert count(classes, size, network=network) == wanted
    whitened = count(classes, size, network=network, layer="whitening", method="exact")
    assert whitened == wanted


@pytest.mark.parametrize(("network", "channels"), [("resnet18", 512), ("resnet50", 2048)])
def test_covariance_pooling_has_the_papers_sizes(network, channels):
    """A 1×1 convolution to 256 with normalisation; 32,896 numbers an image."""
    plain = count(1000, 224, network=network) - 1000 * channels
    assert count(1000, 224, network=network, pooling="covariance") - plain == channels * 256 + 2 * 256 + 1000 * 32_896


def test_alexnet_pools_what_its_last_convolution_gives():
    with torch.device("meta"):
        net = made(1000, size=224, network="alexnet", pooling="covariance")
    assert net.classifier[0].in_features == 32_896
    assert isinstance(net.head.reduction, nn.Identity)


def test_every_network_is_listed_and_made():
    assert list(NETWORKS) == list(_MAKERS)
    assert all(0 < len(line) < 100 for line in NETWORKS.values())


@pytest.mark.parametrize("pooling", ["average", "covariance"])
@pytest.mark.parametrize("network", [name for name in NETWORKS if name not in ("resnet101", "resnet50")])
def test_images_become_logits(network, pooling):
    size = 64 if network in LARGE else 16
    with torch.no_grad():
        net = made(7, size=size, network=network, pooling=pooling, reduce_to=16, method="exact").eval()
        assert net(torch.randn(2, 3, size, size)).shape == (2, 7)


def test_bottlenecks_of_large_images_become_logits():
    with torch.no_grad():
        assert made(7, size=64, network="resnet50").eval()(torch.randn(1, 3, 64, 64)).shape == (1, 7)


def _features(**settings) -> torch.Size:
    """The shape of what a network's last stage gives for an image of 64 × 64."""
    net, shapes = made(size=64, reduce_to=8, **settings).eval(), []
    net.layer4.register_forward_hook(lambda *args: shapes.append(args[2].shape))
    with torch.no_grad():
        net(torch.randn(1, 3, 64, 64))
    return shapes[0]


def test_the_last_stage_is_finer_before_covariance_pooling_in_networks_for_large_images():
    assert _features(network="resnet18") == (1, 512, 2, 2)
    assert _features(network="resnet18", pooling="covariance") == (1, 512, 4, 4)
    assert _features(network="resnet18-cifar") == (1, 512, 8, 8)
    assert _features(network="resnet18-cifar", pooling="covariance") == (1, 512, 8, 8)


@pytest.mark.parametrize("network", ["small", "resnet8", "resnet18-cifar", "resnet18"])
def test_the_layer_after_the_first_convolution_is_the_one_asked_for(network):
    assert type(made(network=network).bn1) is nn.BatchNorm2d
    whitening = made(network=network, layer="whitening", group_size=16, method="svd-taylor", eps=0.5,
                     statistics="whitening", whitening="pca").bn1  # fmt: skip
    assert isinstance(whitening, DecorrelatedBatchNorm2d)
    assert (whitening.num_features, whitening.groups, whitening.eps) == (64, 4, 0.5)
    assert (whitening.method.name, whitening.statistics, whitening.whitening) == ("svd-taylor", "whitening", "pca")
    denoising = made(network=network, layer="denoising", keep=3, group_size=32).bn1
    assert isinstance(denoising, PCADenoising2d)
    assert (denoising.keep, denoising.groups) == (3, 2)


def test_settings_that_are_not_given_are_the_layers_own():
    net = made(layer="whitening", pooling="covariance")
    assert (net.bn1.eps, net.bn1.groups, net.bn1.method.name) == (1e-2, 1, "exact")
    assert (net.head.pooling.eps, net.head.pooling.method.name) == (0.0, "exact")
    assert made(layer="denoising").bn1.method.name == "svd-pade"


def test_spectral_layers_know_their_names():
    net = made(layer="whitening", pooling="covariance")
    assert (net.bn1.name, net.head.pooling.name) == ("bn1", "head.pooling")
    with pytest.raises(SpectralError, match="'bn1'"):
        net(torch.full((2, 3, 32, 32), torch.nan))


@pytest.mark.parametrize("network", SMALL)
def test_width_is_that_of_the_small_networks(network):
    assert parameters(made(network=network, width=8)) < parameters(made(network=network))
    assert parameters(made(network=network, width=16)) == parameters(made(network=network))
    assert made(network=network, width=8).conv1.out_channels == 64


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"layer": "whitening"}, "conv1"),
        ({"layer": "denoising", "network": "resnet8"}, "conv1"),
        ({"layer": "whitening", "weights": "ow"}, "conv1"),
        ({"pooling": "covariance"}, "conv3"),
        ({"pooling": "covariance", "reduce_to": 8}, "head.reduction.0"),
        ({"pooling": "covariance", "reduce_to": 8, "network": "resnet8", "weights": "ow"}, "head.reduction.0"),
    ],
)
def test_the_layer_before_the_spectral_one_is_what_tracing_finds(settings, name):
    net = made(**settings)
    (traced,) = pre_spectral_layers(net, torch.randn(2, 3, 32, 32)).values()
    assert traced.module is pre_spectral(net)
    assert traced.name == name == net.before_spectral


def test_alexnet_and_sums_say_which_convolution_is_pooled():
    with torch.device("meta"):
        assert made(size=224, network="alexnet", pooling="covariance").before_spectral == "conv5"
        assert made(network="resnet8", pooling="covariance").before_spectral == "layer3.0.conv2"


def test_orthogonal_weights_keep_norms():
    net = made(layer="whitening", weights="ow")
    assert isinstance(net.conv1, OrthogonalConv2d)
    x = torch.randn(2, 3, 16, 16)
    assert (net.conv1(x).norm() / x.norm()).item() == pytest.approx(1, abs=net.conv1.tolerance)
    pooled = made(pooling="covariance", reduce_to=8, weights="ow")
    assert isinstance(pooled.head.reduction[0], OrthogonalConv2d)
    assert isinstance(pooled.conv1, nn.Conv2d)


def test_spectral_norm_makes_the_largest_singular_value_one():
    net = made(layer="whitening", weights="sn").train()
    for _ in range(30):
        weight = net.conv1.weight
    assert torch.linalg.matrix_norm(weight.flatten(1), 2).item() == pytest.approx(1, abs=1e-3)
    assert type(made(layer="whitening", weights="ol").conv1) is nn.Conv2d


def test_weights_are_initialized_as_he_does():
    net = made(network="resnet18-cifar")
    for name in ("layer4.1.conv2", "layer4.0.downsample.0"):
        weight = net.get_submodule(name).weight
        fan_out = weight.shape[0] * weight[0, 0].numel()
        assert weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.02)
    assert all(bool((m.weight == 1).all()) for m in net.modules() if isinstance(m, nn.BatchNorm2d))


def test_the_layer_does_not_change_the_start():
    """So that methods are compared from the same weights."""

    def start(**settings):
        torch.manual_seed(0)
        return made(network="resnet8", **settings).state_dict()

    plain, white = start(), start(layer="whitening", method="svd-taylor")
    learnt = [name for name in plain if name.endswith(("weight", "bias"))]
    assert all(torch.equal(plain[name], white[name]) for name in learnt)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "vgg"}, "expected a network of small, resnet8.*or 'module:callable', got 'vgg'"),
        ({"layer": "groupnorm"}, "layer to be one of batchnorm, whitening, denoising, got 'groupnorm'"),
        (
            {"pooling": "max"},
            "pooling to be one of average, covariance, bcnn, improved-bcnn, .*, dropcov, tokens, got 'max'",
        ),
        ({"weights": "wn"}, "weights to be one of plain, sn, ol, ow, got 'wn'"),
        ({"layer": "whitening", "group_size": 48}, "group_size that divides the 64 channels.*got 48"),
        ({"width": 0}, "width of at least 1, got 0"),
        ({"network": "alexnet"}, "alexnet: expected images of at least 63 pixels, got 32"),
        ({"network": "resnet18", "layer": "whitening", "weights": "ow"}, "stride 1 that.*stride=\\(2, 2.*resnet18"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(NetworkError, match=message):
        made(**settings)


@pytest.mark.parametrize(
    ("network", "names"),
    [("resnet8", ["layer3.0.conv2", "layer3.0.downsample.0"]), ("resnet18", ["layer4.1.conv2"])],
)
@pytest.mark.parametrize("weights", ["plain", "sn", "ow"])
def test_treatments_of_pooled_sums_apply_to_every_convolution_in_the_sum(network, names, weights):
    """The rows SN and OW of Table 5, ECCV 2022: ResNet-18, whose last shortcut is the identity."""
    net = made(network=network, pooling="covariance", reduce_to=None, weights=weights)
    found = layers_before_spectral(net, torch.zeros(2, 3, 32, 32))
    assert list(found) == names
    for layer in found.values():
        constrained = isinstance(layer, OrthogonalConv2d) or nn.utils.parametrize.is_parametrized(layer, "weight")
        assert constrained == (weights != "plain")
        if weights == "sn":
            assert torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2).item() == pytest.approx(1, abs=0.1)
    if network == "resnet8":
        assert net(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_a_network_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\nfrom spectralgrad.nn import CovariancePooling\n"
        "class Nets:\n    def pooled(classes):\n"
        "        return nn.Sequential(CovariancePooling(3), nn.Linear(6, classes))\n"
        "number = 3\n\ndef nothing(classes):\n    return None\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    net = made(5, network="own_nets:Nets.pooled")
    assert net(torch.randn(2, 3, 4, 4)).shape == (2, 5)
    assert isinstance(net[0], CovariancePooling)
    assert net[0].name == "0"
    assert sys.path == before
    for name, message in {
        "own_nets:missing": "no attribute 'missing'",
        "own_nets:number": "expected a callable, got int",
        "own_nets:nothing": "expected it to return a torch.nn.Module, got NoneType",
        "no_such_nets:net": "module 'no_such_nets' not found, neither installed nor in",
        "own_nets:": "expected a network as 'module:callable'",
    }.items():
        with pytest.raises(NetworkError, match=message):
            made(network=name)
    with pytest.raises(NetworkError, match="Sequential is not a network of spectralgrad"):
        pre_spectral(net)


def test_a_network_of_ones_own_gets_the_settings_it_asks_for(tmp_path, monkeypatch):
    (tmp_path / "asking_nets.py").write_text(
        "from torch import nn\nfrom spectralgrad.nn import DecorrelatedBatchNorm2d\n"
        "def net(classes, channels, image_size, *, method, group_size=1, **rest):\n    assert not rest\n"
        "    layer = DecorrelatedBatchNorm2d(channels, method=method, groups=channels // group_size)\n"
        "    return nn.Sequential(layer, nn.Flatten(), nn.Linear(channels * image_size**2, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    net = made(5, network="asking_nets:net", method="svd-taylor:degree=5", group_size=3)
    assert net(torch.randn(4, 3, 32, 32)).shape == (4, 5)
    assert (str(net[0].method), net[0].groups) == ("svd-taylor:degree=5", 1)
    assert accepts("asking_nets:net", "method")
    assert not accepts("asking_nets:net", "rest")


@pytest.mark.parametrize("pooling", ["average", "covariance"])
def test_spectral_layers_work_in_the_precision_they_are_told(pooling):
    net = made(layer="whitening", pooling=pooling, spectral_precision="float64", scale_init="uniform")
    layers = list(spectral_layers(net).values())
    assert len(layers) == (2 if pooling == "covariance" else 1)
    assert all(layer.compute_dtype == torch.float64 for layer in layers)
    assert 0 < net.bn1.weight.min() < net.bn1.weight.max() < 1
    seen = []
    layers[-1].register_spectral_hook(lambda _, matrices: seen.append(matrices.dtype))
    out = net(torch.randn(2, 3, 32, 32))
    assert (out.dtype, seen) == (torch.float32, [torch.float64])


def test_what_a_network_of_ones_own_misses_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "broken_nets.py").write_text("import no_such_library\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        made(network="broken_nets:net")


def _gradients(method: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    data = load("fashion")
    images, labels = next(Batches(data.train, 64, mean=data.mean, std=data.std).epoch(0))
    net = made(channels=1, size=28, layer="whitening", method=method)
    return torch.autograd.grad(functional.cross_entropy(net(images), labels), list(net.parameters()))


def test_on_real_images_plain_svd_dies_and_exact_lives():
    assert not all(bool(g.isfinite().all()) for g in _gradients("svd"))
    assert all(bool(g.isfinite().all()) for g in _gradients("exact"))


def test_the_small_network_learns():
    torch.manual_seed(0)
    data = load("fashion", train_size=1000)
    batches = Batches(data.train, 50, mean=data.mean, std=data.std)
    net = made(channels=1, size=28, layer="whitening", group_size=16)
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), []
    for images, labels in batches.epoch(0):
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-4:]) / 4 < 0.6 * losses[0]


def test_settings_may_be_any_object_with_the_attributes():
    assert parameters(build(replace(Settings(), network="resnet8"), 3, 32, 10)) == parameters(made(network="resnet8"))


def test_importing_the_library_does_not_import_the_lab():
    source = Path(spectralgrad.__file__).read_text("utf-8")
    assert not re.search(r"import.*\blab\b", source)


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_block_adds_its_input(block):
    """Without its convolutions only the shortcut is left."""
    made = block(8, 8 // block.expansion)
    nn.init.zeros_(getattr(made, made.last.replace("conv", "bn")).weight)
    x = torch.randn(2, 8, 5, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(made(x), torch.relu(x))


def test_the_network_of_the_conditions_has_the_convolutions_of_its_docstring():
    net = pooling_network(24, 1e-3, ())
    convolutions = [layer for layer in net if isinstance(layer, nn.Conv2d)]
    assert [layer.kernel_size for layer in convolutions] == [(3, 3)] * 3
    assert [layer.stride for layer in convolutions[:2]] == [(2, 2)] * 2
    assert net[:8](torch.zeros(2, 1, 14, 14)).shape == (2, 24, 4, 4)


def test_a_network_of_ones_own_is_traced_and_constrained():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), DecorrelatedBatchNorm2d(4))
    example = torch.randn(2, 3, 5, 5)
    assert layers_before_spectral(net, example) == {"0": net[0]}
    constrain_weights(net, "sn", example)
    assert torch.linalg.matrix_norm(net[0].weight.detach().flatten(1), 2).item() == pytest.approx(1.0, abs=0.05)
    named = made(layer="whitening")
    assert layers_before_spectral(named, torch.zeros(2, 3, 32, 32)) == {named.before_spectral: pre_spectral(named)}


def test_eigenvalues_are_raised_in_the_published_form_unless_the_limit_is_zero():
    for eps, wanted in ((0.0, {}), (1e-5, {"clamp": 1e-5})):
        found = published_form._published(eps, PCADenoising2d(4, eps=eps))
        assert found["svd-clip"] == wanted
        assert found["svd-trunc"] == {"faithful": True, **wanted}


def test_the_baselines_of_whitening_are_as_released():
    whitening, denoising = DecorrelatedBatchNorm2d(4, eps=0.01), PCADenoising2d(4, eps=0.01)
    in_whitening = {m: str(published_form.in_form("published", m, whitening)) for m in ("svd", "pi")}
    assert in_whitening == {"svd": "svd:stop=0.01", "pi": "pi:eps=0.01:faithful=True"}
    assert str(published_form.in_form("published", "svd", denoising)) == "svd"
