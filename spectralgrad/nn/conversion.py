"""Replaces the batch normalisation layers of a network by whitening layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..dispatch.arguments import checked, described
from ..errors import ArgumentError
from . import attachments
from .whitening import DecorrelatedBatchNorm1d, DecorrelatedBatchNorm2d, DecorrelatedBatchNorm3d, _DecorrelatedBatchNorm

__all__ = ["convert_decorrelated_batchnorm"]

_STATE = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
Which = str | Iterable[str] | Callable[[str, nn.Module], bool]


@checked
def convert_decorrelated_batchnorm(net: nn.Module, which: Which = "first", **options: Any) -> nn.Module:
    r"""Replace batch normalisation layers by decorrelated ones (:class:`DecorrelatedBatchNorm2d`), in place.

    The new layers keep weight, bias, running mean, momentum, number of batches, device, dtype, training mode and
    ``requires_grad``. Weight and bias remain the same parameter objects, so an existing optimiser continues to train
    them. The running variances become the diagonal of the running covariance. If ``eps`` equals the ``eps`` of the old
    layers, the network computes the same function in evaluation mode until it is trained further. Hooks of every kind,
    with their handles, and attributes that were set on a layer move to the new one.

    Args:
        net: the network. Its BatchNorm1d, BatchNorm2d, BatchNorm3d and SyncBatchNorm layers can be replaced; a
            SyncBatchNorm becomes a :class:`DecorrelatedBatchNorm2d` with ``sync=True``.
        which: the layers to replace: ``"first"`` (in the order of ``net.named_modules()``, as in the papers),
            ``"all"``, one or several names, or a function ``which(name, layer)`` that returns a bool.
        options: arguments of the new layers, such as ``groups``, ``method`` or ``eps``. The default ``eps`` is 1e-2;
            it is not copied from the old layer.

    Returns:
        ``net``, or the new layer if ``net`` is itself a batch normalisation layer.

    Raises:
        ArgumentError: no layer to replace, a name that does not belong to a batch normalisation layer, a layer whose
            methods were replaced (``forward``, ``train``, …) or that has other parameters, buffers or parametrizations,
            or ``groups`` that do not divide the number of channels. Nothing is changed then.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
        >>> convert_decorrelated_batchnorm(net, groups=2)[1]
        DecorrelatedBatchNorm2d(8, eps=0.01, momentum=0.1, affine=True, track_running_stats=True, method='exact',
                                groups=2, whitening='zca')
        >>> type(net[4]).__name__
        'BatchNorm2d'

    Reference: Wang et al., TPAMI 2021, Table 2 (the layer after the first convolution is replaced).
    """
    found = {name: layer for name, layer in net.named_modules() if isinstance(layer, _BatchNorm)}
    chosen = _chosen(found, which)
    new = {id(found[name]): _converted(name, found[name], options) for name in chosen}
    for name in chosen:
        attachments.move(found[name], new[id(found[name])])
    if id(net) in new:
        return new[id(net)]
    for parent in list(net.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and id(child) in new:
                setattr(parent, name, new[id(child)])
    return net


def _chosen(found: dict[str, _BatchNorm], which: Which) -> list[str]:
    if callable(which):
        chosen = [name for name, layer in found.items() if which(name, layer)]
    elif isinstance(which, str):
        chosen = {"first": list(found)[:1], "all": list(found)}.get(which, [which])
    else:
        chosen = list(which)
    listed = ", ".join(map(repr, found)) or "none"
    if not chosen:
        raise ArgumentError(
            f"convert_decorrelated_batchnorm: expected which to select at least one layer, got none; "
            f"batch normalisation layers of the network: {listed}"
        )
    for name in chosen:
        if not isinstance(name, str) or name not in found:
            raise ArgumentError(
                f"convert_decorrelated_batchnorm: expected which to be 'first', 'all' or names of layers, "
                f"got {described(name)}; batch normalisation layers of the network: {listed}"
            )
    return chosen


def _converted(name: str, old: _BatchNorm, options: dict[str, Any]) -> _DecorrelatedBatchNorm:
    tensors = [t for t in (old.weight, old.running_mean) if t is not None]
    settings: dict[str, Any] = {
        "momentum": old.momentum,
        "affine": old.affine,
        "bias": old.bias is not None,
        "track_running_stats": old.track_running_stats,
        "device": tensors[0].device if tensors else None,
        "dtype": tensors[0].dtype if tensors else None,
    }
    if isinstance(old, nn.SyncBatchNorm):
        settings |= {"sync": True, "process_group": old.process_group}
    kind = _kind(name, old)
    try:
        new = kind(old.num_features, **(settings | options))
    except ArgumentError as error:
        raise ArgumentError(f"convert_decorrelated_batchnorm: layer {name!r}: {error}") from error
    for lost in (x for x in attachments.attributes(old, new) if hasattr(new, x)):
        raise _refusal(name, old, f"has an attribute {lost!r}, which means something else in {type(new).__name__}")
    new.name = vars(old).get("name") or name or None
    _copy(old, new)
    return new.train(old.training)


def _kind(name: str, old: _BatchNorm) -> type[_DecorrelatedBatchNorm]:
    kinds: dict[type[_BatchNorm], type[_DecorrelatedBatchNorm]] = {
        nn.BatchNorm1d: DecorrelatedBatchNorm1d,
        nn.BatchNorm2d: DecorrelatedBatchNorm2d,
        nn.BatchNorm3d: DecorrelatedBatchNorm3d,
        nn.SyncBatchNorm: DecorrelatedBatchNorm2d,
    }
    for kind, new in kinds.items():
        if isinstance(old, kind):
            for added in attachments.additions(old, _STATE):
                raise _refusal(name, old, f"has {added!r}, which would be lost")
            for method in attachments.replaced_methods(old, kind):
                raise _refusal(name, old, f"has its own {method} method, which would be lost")
            return new
    raise ArgumentError(
        f"convert_decorrelated_batchnorm: expected BatchNorm1d, 2d or 3d at {name!r}, got {type(old).__name__}"
    )


def _refusal(name: str, old: _BatchNorm, why: str) -> ArgumentError:
    return ArgumentError(
        f"convert_decorrelated_batchnorm: {type(old).__name__} at {name!r} {why}; select other layers with which="
    )


@torch.no_grad()
def _copy(old: _BatchNorm, new: _DecorrelatedBatchNorm) -> None:
    for name in ("weight", "bias"):
        source, target = getattr(old, name), getattr(new, name)
        if source is None or target is None:
            continue
        if isinstance(source, nn.Parameter) and (source.dtype, source.device) == (target.dtype, target.device):
            setattr(new, name, source)  # the same object: an optimiser may hold a reference to it
        else:
            target.copy_(source).requires_grad_(source.requires_grad)
    if old.running_mean is None or old.running_var is None or new.running_mean is None:
        return
    new.running_mean.copy_(old.running_mean)
    d = new.num_features // new.groups
    variance = old.running_var.view(new.groups, d)
    if new.statistics == "whitening":  # then the averaged matrix is (C + εI)^(−1/2) instead of C
        variance = 1 / (variance + new.eps).sqrt()
    new._averaged.copy_(torch.diag_embed(variance))
    if old.num_batches_tracked is not None and new.num_batches_tracked is not None:
        new.num_batches_tracked.copy_(old.num_batches_tracked)
