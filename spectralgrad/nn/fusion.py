r"""Folding of whitening and denoising layers into the preceding layer, for inference.

In evaluation a whitening or denoising layer is a fixed affine map of the channels, :math:`y=Ax+b`; after a convolution
or a linear layer with weight K and bias c, the two are equal to one layer with weight AK and bias Ac + b.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils import parametrize

from ..dispatch.arguments import checked
from ..errors import ArgumentError
from . import attachments
from .base import SpectralModule
from .functional.affine_map import with_affine
from .running_norm import RunningNorm

__all__ = ["fuse_whitening"]

_LIBRARY = f"{__package__}."


class Pair(NamedTuple):
    """Names of a layer to fold and of the layer before it."""

    before: str
    layer: str


@checked
def fuse_whitening(net: nn.Module, example: Any = None) -> nn.Module:
    """Fold every whitening or denoising layer into the convolution or linear layer before it, for inference.

    The network is changed in place: the convolution or linear layer gets a new weight and bias, and the folded layer
    becomes :class:`torch.nn.Identity`. If a layer cannot be folded exactly, nothing changes and an error is raised.

    Args:
        net: a network in evaluation mode.
        example: an input, or a tuple of inputs. If given, the order of layers is recorded by running the network on it
            instead of tracing with torch.fx, so any Python control flow is allowed, and the folded network is compared
            with the original on it.

    Returns:
        The same network.

    Raises:
        ArgumentError: a layer is in training mode or has no running statistics; the layer before it is not a
            convolution or linear layer, or its output is used elsewhere, or it has shared or parametrized weights; one
            of the two has hooks or a ``forward`` method of its own; or the channel groups do not match.

    Example:
        >>> from torch import nn
        >>> from spectralgrad.nn import DecorrelatedBatchNorm2d
        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), DecorrelatedBatchNorm2d(8), nn.ReLU()).double()
        >>> X = torch.randn(2, 3, 9, 9, dtype=torch.float64)
        >>> _ = net(X)                                       # a training step
        >>> expected = net.eval()(X)
        >>> fuse_whitening(net)[1]
        Identity()
        >>> torch.allclose(net(X), expected)
        True

    Reference: as torch.nn.utils.fusion.fuse_conv_bn_eval does for batch normalisation.
    """
    layers = dict(net.named_modules())
    wanted = [name for name, layer in layers.items() if isinstance(layer, RunningNorm)]
    if not wanted:
        return net
    for name in wanted:
        _check_evaluated(name, layers[name])
    inputs = example if isinstance(example, tuple) else (example,)
    pairs = _traced(net, wanted) if example is None else _watched(net, inputs, wanted)
    folded = [_fold(pair, layers[pair.before], layers[pair.layer], net) for pair in pairs]
    with torch.no_grad():
        expected = None if example is None else net(*inputs)
        undo = [_install(net, pair, weight, bias) for pair, (weight, bias) in zip(pairs, folded, strict=True)]
        if not _still(lambda: _is_rid(net) if example is None else _same(net(*inputs), expected), undo):
            found = (
                "calls a folded layer in another way" if example is None else "gives a different result on the example"
            )
            raise ArgumentError(
                f"fuse_whitening: the folded network {found}, so nothing was changed; "
                "the output or the weight of a layer before a folded one is probably used elsewhere too"
            )
    return net


def _still(check: Callable[[], bool], undo: list[Callable[[], None]]) -> bool:
    """Whether the folded network passes a check; if not, or if it fails, the folding is undone."""
    passed = False
    try:
        passed = check()
    finally:
        for step in [] if passed else reversed(undo):
            step()
    return passed


def _is_rid(net: nn.Module) -> bool:
    """Whether the network no longer calls the layers that were replaced, as it may through a list of its own."""
    try:
        _Tracer().trace(net)
    except NameError:  # "module is not installed as a submodule"
        return False
    return True


def _check_evaluated(name: str, layer: nn.Module) -> None:
    assert isinstance(layer, RunningNorm)
    if layer.training:
        raise ArgumentError(
            f"fuse_whitening: expected a network in evaluation mode, got layer {name!r} in training; call net.eval()"
        )
    if layer.running_mean is None:
        raise ArgumentError(f"fuse_whitening: layer {name!r} has no running statistics, so it is not a fixed map")


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True  # so that the graph shows statistics which the network reads itself

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SpectralModule) or super().is_leaf_module(m, module_qualified_name)


def _traced(net: nn.Module, wanted: list[str]) -> list[Pair]:
    """The layer before each wanted layer, from the graph that torch.fx traces."""
    if isinstance(net, RunningNorm):
        raise ArgumentError("fuse_whitening: expected a network with a layer to fold into, got a single layer")
    try:
        graph = _Tracer().trace(net)
    except Exception as error:
        raise ArgumentError(
            f"fuse_whitening: torch.fx cannot trace this network ({error}); pass an example input instead"
        ) from error
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    pairs = []
    for node in graph.nodes:
        if node.op == "call_module" and node.target in wanted:
            if not node.args:
                raise _refusal(node.target, "it is called by keyword")
            before = node.args[0]
            if not isinstance(before, fx.Node) or before.op != "call_module":
                kind = before.op if isinstance(before, fx.Node) else "nothing"
                raise _refusal(node.target, f"its input comes from {kind} {before}, not from a layer")
            if len(before.users) > 1:
                raise _refusal(node.target, f"the output of {before.target!r} is used elsewhere too")
            pairs.append(Pair(str(before.target), str(node.target)))
    _check_single_use(pairs, wanted, calls)
    read = [str(node.target) for node in graph.nodes if node.op == "get_attr"]
    for pair in pairs:
        for name in read:
            if name.startswith((f"{pair.before}.", f"{pair.layer}.")):
                raise _refusal(pair.layer, f"{name!r} is used elsewhere in the forward pass too")
    return pairs


def _watched(net: nn.Module, inputs: tuple[Any, ...], wanted: list[str]) -> list[Pair]:
    """The layer before each wanted layer, from a run: the one whose output is, as an object, the input of this one."""
    made: dict[int, tuple[str, Tensor]] = {}
    calls: Counter[str] = Counter()
    pairs: list[Pair] = []

    def watch(name: str, args: tuple[Any, ...], out: Any) -> None:
        calls[name] += 1
        if name in wanted:
            if not args:
                raise _refusal(name, "it is called by keyword")
            before = made.get(id(args[0]))
            if before is None:
                raise _refusal(name, "its input is not the output of a layer")
            pairs.append(Pair(before[0], name))
        if isinstance(out, Tensor):
            made[id(out)] = (name, out)

    handles = [
        layer.register_forward_hook(lambda _, args, out, name=name: watch(name, args, out))
        for name, layer in net.named_modules()
        if not any(layer.children())
    ]
    try:
        with torch.no_grad():
            net(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    _check_single_use(pairs, wanted, calls)
    return pairs


def _check_single_use(pairs: list[Pair], wanted: list[str], calls: Counter[Any]) -> None:
    for name in wanted:
        if calls[name] != 1:
            raise _refusal(name, f"it is called {calls[name]} times in a forward pass")
    for pair in pairs:
        if calls[pair.before] != 1:
            raise _refusal(pair.layer, f"{pair.before!r} before it is called {calls[pair.before]} times")


def _fold(pair: Pair, before: nn.Module, layer: nn.Module, net: nn.Module) -> tuple[Tensor, Tensor]:
    """The new weight and bias of the layer before, computed in float64 on the CPU."""
    assert isinstance(layer, RunningNorm)
    assert layer.running_mean is not None
    if not isinstance(before, _ConvNd | nn.Linear):
        raise _refusal(
            pair.layer, f"{pair.before!r} before it is {type(before).__name__}, not a convolution or linear layer"
        )
    if parametrize.is_parametrized(before) or "weight" not in before._parameters:
        raise _refusal(pair.layer, f"the weight of {pair.before!r} is parametrised")
    for name, changed in ((pair.layer, layer), (pair.before, before)):
        for what in _changes(changed, kept=changed is before):
            raise _refusal(pair.layer, f"{name!r} has {what}")
    owners = [name for name, p in net.named_parameters(remove_duplicate=False) if p is before.weight]
    if len(owners) > 1:
        raise _refusal(pair.layer, f"the weight of {pair.before!r} is shared: {', '.join(owners)}")
    with torch.no_grad():
        affine = (None if x is None else _wide(x) for x in (layer.weight, layer.bias))
        A, b = with_affine(_wide(layer.evaluation_matrix()), *affine)
        old = layer.running_mean.new_zeros(()) if before.bias is None else before.bias
        c = (_wide(old) - _wide(layer.running_mean)).view(*A.shape[:2], 1)
        weight = _multiplied(A, before, pair).to(before.weight)
        bias = ((A @ c).squeeze(-1) + b).flatten().to(before.weight)
        return weight, bias


def _wide(x: Tensor) -> Tensor:
    """On the CPU, because devices such as MPS have no float64."""
    return x.cpu().double()


def _changes(layer: nn.Module, kept: bool) -> list[str]:
    """What makes the output of a layer differ from its class in the library, or would be lost with it."""
    base = next(kind for kind in type(layer).__mro__ if kind.__module__.startswith(("torch.nn.modules.", _LIBRARY)))
    own = attachments.replaced_methods(layer, base, ("__call__", "forward", "_conv_forward"))
    hooks = [name for name in attachments.hooks(layer) if not (kept and "state_dict" in name)]
    return [*(f"its own {name} method" for name in own), *(name.replace("_", " ") for name in hooks)]


def _multiplied(A: Tensor, before: _ConvNd | nn.Linear, pair: Pair) -> Tensor:
    """AK, with the groups of both layers taken into account."""
    groups, d = A.shape[:2]
    K = _wide(before.weight)
    count = before.out_channels if isinstance(before, _ConvNd) else before.out_features
    if count != groups * d:
        raise _refusal(pair.layer, f"{pair.before!r} before it has {count} outputs, not {groups * d}")
    inner = before.groups if isinstance(before, _ConvNd) else 1
    if (count // inner) % d:
        raise _refusal(
            pair.layer, f"it mixes channels that the {inner} groups of {pair.before!r} compute from different inputs"
        )
    if not isinstance(before, _ConvTransposeNd):
        return (A @ K.reshape(groups, d, -1)).view(K.shape)
    per = count // inner  # the weight is (inputs, outputs of a group, *); its groups lie along the inputs
    split = K.view(inner, K.shape[0] // inner, per // d, d, -1)
    mixed = torch.einsum("gqij,gpqjk->gpqik", A.view(inner, per // d, d, d), split)
    return mixed.reshape(K.shape)


def _install(net: nn.Module, pair: Pair, weight: Tensor, bias: Tensor) -> Callable[[], None]:
    """Install the new weight and bias; return a function that undoes it."""
    before, layer, new = net.get_submodule(pair.before), net.get_submodule(pair.layer), nn.Identity()
    old = dict(before._parameters)
    trains = all(p is None or p.requires_grad for p in old.values())
    for name, value in (("weight", weight), ("bias", bias)):
        before._parameters[name] = nn.Parameter(value, requires_grad=trains)
    _replace(net, layer, new)

    def undo() -> None:
        before._parameters.update(old)
        _replace(net, new, layer)

    return undo


def _replace(net: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put ``new`` at every place of ``old``: a layer may be registered under several names."""
    for parent in list(net.modules()):
        for name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, name, new)


def _same(result: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor) and not expected.is_floating_point():
        return torch.equal(result, expected)
    if isinstance(expected, Tensor):
        size = expected.abs().max().item() if expected.numel() else 0.0
        share = min(1e3 * torch.finfo(expected.dtype).eps, 2**-4)  # 2**-4 applies to float16 and bfloat16
        return torch.allclose(result, expected, rtol=0, atol=share * max(size, 1e-30))
    if isinstance(expected, dict):
        return all(_same(result[key], expected[key]) for key in expected)
    if isinstance(expected, tuple | list):
        return all(_same(r, e) for r, e in zip(result, expected, strict=True))
    return bool(result == expected)


def _refusal(name: Any, reason: str) -> ArgumentError:
    return ArgumentError(f"fuse_whitening: layer {name!r} cannot be folded exactly: {reason}")
