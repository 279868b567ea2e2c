"""Checkpoints of the released code: their names and shapes, what becomes of them, and files that are no checkpoints."""

import pytest
import torch
from torch import nn

from spectralgrad_lab import Config
from spectralgrad_lab.networks import NetworkError, build
from spectralgrad_lab.networks.released_names import from_released, read_released


def bottleneck(name, inputs, width, stride):
    """Names and shapes of a bottleneck block of torchvision, which the released code copies."""
    shapes = {"conv1": (width, inputs, 1, 1), "conv2": (width, width, 3, 3), "conv3": (4 * width, width, 1, 1)}
    state = {f"{name}.{layer}.weight": shape for layer, shape in shapes.items()}
    for layer, shape in (("bn1", width), ("bn2", width), ("bn3", 4 * width)):
        state |= batchnorm(f"{name}.{layer}", shape)
    if stride != 1 or inputs != 4 * width:
        state[f"{name}.downsample.0.weight"] = (4 * width, inputs, 1, 1)
        state |= batchnorm(f"{name}.downsample.1", 4 * width)
    return state


def batchnorm(name, channels):
    return {f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")}


def residual_50():
    """ResNet-50 of DifferentiableSVD as `Newmodel` saves it, trained with DataParallel over `features`."""
    state = {"features.module.0.weight": (64, 3, 7, 7), **batchnorm("features.module.1", 64)}
    inputs = 64
    for stage, (depth, width) in enumerate(zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True)):
        for k in range(depth):
            stride = 2 if k == 0 and stage in (1, 2) else 1
            state |= bottleneck(f"features.module.{stage + 4}.{k}", inputs, width, stride)
            inputs = 4 * width
    state["representation.conv_dr_block.0.weight"] = (256, 2048, 1, 1)
    state |= batchnorm("representation.conv_dr_block.1", 256)
    return state | {"classifier.weight": (10, 32_896), "classifier.bias": (10,)}


def random_state(shapes):
    generator = torch.Generator().manual_seed(0)
    return {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}


def test_resnet50_of_the_iccv_code():
    net = build(Config(network="resnet50", layer="batchnorm", pooling="covariance", method="svd-pade"), 3, 64, 10)
    state = random_state(residual_50())
    net.load_state_dict(from_released(state, net))
    assert torch.equal(net.layer3[5].conv2.weight, state["features.module.6.5.conv2.weight"])
    assert torch.equal(net.head.reduction[1].running_var, state["representation.conv_dr_block.1.running_var"])
    assert torch.equal(net.fc.bias, state["classifier.bias"])


def test_a_classifier_of_whole_matrices_gives_the_same_logits():
    """`MPNCOVResNet` of the same code: `layer_reduce`, and 256² features before `fc`."""
    config = Config(network="resnet50", layer="batchnorm", pooling="covariance")
    net = build(config, 3, 64, 10)
    shapes = residual_50()
    renamed = {
        name.replace("representation.conv_dr_block.0", "layer_reduce")
        .replace("representation.conv_dr_block.1", "layer_reduce_bn")
        .replace("classifier", "fc"): shape
        for name, shape in shapes.items()
    }
    state = random_state(renamed | {"fc.weight": (10, 256 * 256)})
    S = torch.rand(2, 256, 256, dtype=torch.float64)
    S = S + S.mT
    rows, columns = torch.triu_indices(256, 256)
    found = from_released(state, net)["fc.weight"].double()
    torch.testing.assert_close(
        S[:, rows, columns] @ found.mT, S.flatten(1) @ state["fc.weight"].double().mT, rtol=1e-6, atol=0
    )


def released_whitening(layer):
    """The buffers of the released ZCA layers: columns, one matrix per group, and starts of power iteration."""
    state = {name: value for name, value in layer.state_dict().items() if name in ("weight", "bias", "running_mean")}
    state = {name: value.unsqueeze(1) for name, value in state.items()}
    state |= {f"running_subspace{k}": matrix for k, matrix in enumerate(layer.running_whitening)}
    return state | {f"eigenvector{k}-0": torch.ones(16, 1) for k in range(layer.groups)}


def test_whitening_of_the_tpami_code():
    settings = {"network": "resnet18-cifar", "layer": "whitening", "group_size": 4, "statistics": "whitening"}
    theirs, ours = (build(Config(seed=seed, **settings), 3, 32, 10) for seed in (0, 1))
    theirs(torch.rand(8, 3, 32, 32))  # running statistics
    layer = released_whitening(theirs.bn1)
    assert "running_subspace11" in layer  # sorted as numbers
    state = {name: value for name, value in theirs.state_dict().items() if not name.startswith("bn1.")}
    state |= {f"bn1.{name}": value for name, value in layer.items()}
    ours.load_state_dict(from_released(state, ours))
    X = torch.rand(2, 3, 32, 32)
    assert torch.equal(ours.eval()(X), theirs.eval()(X))


def test_alexnet():
    net = build(Config(network="alexnet", layer="batchnorm", pooling="average"), 3, 224, 10)
    state = {}
    for name, value in net.state_dict().items():
        layer, _, part = name.partition(".")
        if layer != "classifier":
            place = (0, 4, 8, 11, 14)[int(layer[-1]) - 1] + layer.startswith("bn")
            name = f"features.{place}.{part}"
        state[name] = value + 1
    net.load_state_dict(from_released(state, net))
    assert torch.equal(net.bn4.running_var, state["features.12.running_var"])
    assert torch.equal(net.conv2.bias, state["features.4.bias"])


def test_dropcov():
    net = build(Config(network="resnet18", layer="batchnorm", pooling="dropcov", reduce_to=64), 3, 64, 10)
    state = {
        name.replace("head.reduction.0", "layer_reduce")
        .replace("head.reduction.1", "layer_reduce_bn")
        .replace("head.pooling.attention", "eca_layer.conv"): value + 1
        for name, value in net.state_dict().items()
    }
    assert "eca_layer.conv.weight" in state
    net.load_state_dict(from_released(state, net))
    assert torch.equal(net.head.pooling.attention.weight, state["eca_layer.conv.weight"])


def test_what_does_not_fit_is_listed():
    net = build(Config(network="resnet8", layer="whitening", group_size=16, width=4), 3, 32, 10)
    state = net.state_dict()
    del state["fc.bias"]
    state["bn1.running_subspace0"] = torch.eye(16)
    state["conv1.weight"] = torch.ones(1)
    message = r"left over: bn1\.running_whitening; missing: fc\.bias; of another shape: conv1\.weight \(1,\), expected"
    with pytest.raises(NetworkError, match=message):
        from_released(state, net)


@pytest.mark.parametrize("entry", [None, "state_dict"])
def test_files_are_read_without_unpickling(tmp_path, entry):
    state = nn.Linear(2, 3).state_dict()
    path = tmp_path / "checkpoint.pth.tar"
    torch.save({entry: state, "epoch": 3} if entry else state, path)
    assert torch.equal(read_released(path)["weight"], state["weight"])
    torch.save(nn.Linear(2, 3), path)  # a whole module, which would have to be unpickled
    with pytest.raises(Exception, match=r"(?i)weights.only"):
        read_released(path)
    torch.save({"epoch": 3}, path)
    with pytest.raises(NetworkError, match="expected a state dict, or a dictionary with an entry 'state_dict'"):
        read_released(path)


def test_safetensors(tmp_path):
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, tmp_path / "weights.safetensors")
    assert torch.equal(read_released(tmp_path / "weights.safetensors")["weight"], torch.ones(2))
