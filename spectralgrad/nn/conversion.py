"""Batch normalisation layers of a network turned into whitening ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import ArgumentError
from .whitening import DecorrelatedBatchNorm1d, DecorrelatedBatchNorm2d, DecorrelatedBatchNorm3d, _DecorrelatedBatchNorm

Which = str | Iterable[str] | Callable[[str, nn.Module], bool]


def convert_decorrelated_batchnorm(net: nn.Module, which: Which = "first", **options: Any) -> nn.Module:
    r"""Replace batch normalisation layers by :class:`DecorrelatedBatchNorm2d` and its kin, in place.

    Weight, bias, running mean, momentum, number of batches, device, type, training mode and whether parameters are
    frozen are kept. Weight and bias stay the same parameters, so an optimiser goes on training them. The running
    variances become the diagonal of the running covariance. With ``eps`` as it was, the evaluated net is the same
    function until it trains again.

    Args:
        net: the network; its BatchNorm1d/2d/3d and SyncBatchNorm layers are considered. The latter become
            two-dimensional ones with ``sync=True``.
        which: ``"first"``, as in the papers, in the order of ``net.named_modules()``; ``"all"``; names; or a function
            of name and layer.
        options: passed to the new layers: ``groups``, ``method``, ``eps`` (by default 1e-2, not the old one's) ...

    Returns:
        the net, or the new layer if ``net`` is itself a batch normalisation layer.

    Raises:
        ArgumentError: nothing to replace, a name that is not that of a batch normalisation layer, a layer with a
            forward pass of its own, groups that do not fit.

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
    elif which in ("first", "all"):
        chosen = list(found)[:1] if which == "first" else list(found)
    else:
        chosen = [which] if isinstance(which, str) else list(which)
    listed = ", ".join(map(repr, found)) or "none"
    if not chosen:
        raise ArgumentError(
            f"convert_decorrelated_batchnorm: expected a layer to replace, got none; there are: {listed}"
        )
    for name in chosen:
        if name not in found:
            raise ArgumentError(
                f"convert_decorrelated_batchnorm: expected 'first', 'all' or names of batch normalisation layers, "
                f"got {name!r}; there are: {listed}"
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
    try:
        new = _kind(name, old)(old.num_features, **(settings | options))
    except ArgumentError as error:
        raise ArgumentError(f"convert_decorrelated_batchnorm: layer {name!r}: {error}") from error
    new.name = name or None
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
            if type(old).forward is not kind.forward:
                raise ArgumentError(
                    f"convert_decorrelated_batchnorm: {type(old).__name__} at {name!r} has a forward pass of its own, "
                    "which would be lost; choose the layers to replace with which="
                )
            return new
    raise ArgumentError(
        f"convert_decorrelated_batchnorm: expected BatchNorm1d, 2d or 3d at {name!r}, got {type(old).__name__}"
    )


@torch.no_grad()
def _copy(old: _BatchNorm, new: _DecorrelatedBatchNorm) -> None:
    for name in ("weight", "bias"):
        source, target = getattr(old, name), getattr(new, name)
        if source is None or target is None:
            continue
        if isinstance(source, nn.Parameter) and (source.dtype, source.device) == (target.dtype, target.device):
            setattr(new, name, source)  # the parameter itself, which an optimiser may know
        else:
            target.copy_(source).requires_grad_(source.requires_grad)
    if old.running_mean is None or old.running_var is None or new.running_mean is None:
        return
    new.running_mean.copy_(old.running_mean)
    d = new.num_features // new.groups
    variance = old.running_var.view(new.groups, d)
    if new.statistics == "whitening":
        variance = 1 / (variance + new.eps).sqrt()
    new._averaged.copy_(torch.diag_embed(variance))
    if old.num_batches_tracked is not None and new.num_batches_tracked is not None:
        new.num_batches_tracked.copy_(old.num_batches_tracked)
