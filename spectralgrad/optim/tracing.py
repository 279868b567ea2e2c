"""Finds the convolution or linear layer whose output feeds a spectral layer, by running one batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map

from ..dispatch.arguments import checked
from ..errors import SpectralError
from ..nn.base import spectral_layers
from ..nn.orthogonal import OrthogonalConv2d

__all__ = ["PreSpectral", "pre_spectral_layers"]

_LINEAR = (_ConvNd, nn.Linear, nn.Bilinear, OrthogonalConv2d)


class PreSpectral(NamedTuple):
    """The layer before a spectral layer: its name in the model, and the module.

    Example:
        >>> PreSpectral("conv1", torch.nn.Flatten()).name
        'conv1'
    """

    name: str
    module: nn.Module


@checked
def pre_spectral_layers(
    model: nn.Module, *inputs: Any, choose: Mapping[str, str] | None = None, **options: Any
) -> dict[str, PreSpectral]:
    """Find, for each spectral layer, the convolution or linear layer whose output feeds it (the Pre-SVD layer).

    One batch is run in evaluation mode, so running statistics do not change and dropout draws no random numbers.
    Everything between the two layers (activations, pooling, normalisation, sums) is traced through the autograd graph.
    A layer inside the spectral layer itself takes precedence.

    Args:
        model: a model with at least one :class:`SpectralModule`; torch.compile, DataParallel and
            DistributedDataParallel are unwrapped.
        inputs: positional arguments of the model for one batch; a single sample is enough.
        choose: name of a spectral layer → name of the layer before it, for spectral layers that several layers feed.
        options: keyword arguments of the model.

    Returns:
        name of each spectral layer → :class:`PreSpectral`, in the order of the model.

    Raises:
        SpectralError: the model has no spectral layer, the batch does not reach one, or not exactly one layer feeds it
            (the message lists the candidates).

    Example:
        >>> from spectralgrad.nn import SpectralModule
        >>> class Identity(SpectralModule):
        ...     def forward(self, x):
        ...         return x
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(inplace=True), Identity())
        >>> pre_spectral_layers(model, torch.randn(2, 4))
        {'2': PreSpectral(name='0', module=Linear(in_features=4, out_features=3, bias=True))}

    Reference: Song, Sebe and Wang, ECCV 2022, section 4.1.
    """
    model = _unwrapped(model)
    names = {module: name for name, module in model.named_modules()}
    spectral = spectral_layers(model, required_by="pre_spectral_layers")
    with ExitStack() as stack:
        trace = _Trace(stack, names, spectral.values())
        stack.enter_context(_evaluating(model))
        stack.enter_context(torch.enable_grad())
        model(*inputs, **options)
    chosen = dict(choose or {})
    _check_names(chosen, set(spectral))
    return {name: _one(names, layer, trace.feeding.get(layer), chosen) for name, layer in spectral.items()}


class _Trace:
    """Forward hooks that record which linear layers the input of each spectral layer was computed from.

    The graph is cut after every linear layer: its output is replaced by a new leaf, so that the walk back from a
    spectral layer ends there.
    """

    def __init__(self, stack: ExitStack, modules: Iterable[nn.Module], spectral: Iterable[nn.Module]) -> None:
        self.feeding: dict[nn.Module, list[nn.Module]] = {}
        self._cuts: dict[int, tuple[Tensor, nn.Module]] = {}
        for module in modules:
            if isinstance(module, _LINEAR):
                stack.enter_context(module.register_forward_hook(self._cut))
        for layer in spectral:
            stack.enter_context(layer.register_forward_pre_hook(self._arrive, with_kwargs=True))
            stack.enter_context(layer.register_forward_hook(self._leave))

    def _cut(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        def leaf(x: Any) -> Any:
            if not isinstance(x, Tensor) or not (x.is_floating_point() or x.dtype.is_complex):
                return x
            cut = x.detach().requires_grad_()
            self._cuts[id(cut)] = (cut, module)
            return cut.clone()  # a leaf that requires a gradient must not be modified in place; its clone may be

        return tree_map(leaf, output)

    def _arrive(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        before = self.feeding.setdefault(module, [])
        before += [m for m in self._sources((args, kwargs)) if m not in before]

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        children = set(module.modules())
        inside = [m for _, m in self._cuts.values() if m in children]
        if inside:
            self.feeding[module] = list(dict.fromkeys(inside))

    def _sources(self, inputs: Any) -> list[nn.Module]:
        """The modules at whose cuts a walk back through the graph of the inputs ends."""
        waiting = [x.grad_fn for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.grad_fn is not None]
        seen, found = set(waiting), dict[nn.Module, None]()
        while waiting:
            node = waiting.pop()
            cut = self._cuts.get(id(getattr(node, "variable", None)))
            if cut is not None:
                found[cut[1]] = None
            for before, _ in node.next_functions:
                if before is not None and before not in seen:
                    seen.add(before)
                    waiting.append(before)
        return list(found)


def _one(
    names: Mapping[nn.Module, str], layer: nn.Module, feeding: list[nn.Module] | None, choose: Mapping[str, str]
) -> PreSpectral:
    name = names[layer]
    if name in choose:
        by_name = {n: m for m, n in names.items()}
        if choose[name] not in by_name:
            raise SpectralError(
                f"pre_spectral_layers: choose={{{name!r}: {choose[name]!r}}}, but the model has no layer of that name"
            )
        return PreSpectral(choose[name], by_name[choose[name]])
    if feeding is None:
        raise SpectralError(
            f"pre_spectral_layers: the batch did not pass through the spectral layer {name!r}; "
            f"name the layer before it with choose={{{name!r}: ...}}"
        )
    if len(feeding) == 1:
        return PreSpectral(names[feeding[0]], feeding[0])
    if not feeding:
        raise SpectralError(f"pre_spectral_layers: no convolution or linear layer feeds the spectral layer {name!r}")
    candidates = sorted(names[m] for m in feeding)
    raise SpectralError(
        f"pre_spectral_layers: {len(candidates)} layers feed the spectral layer {name!r}: {', '.join(candidates)}. "
        f"Choose one, such as choose={{{name!r}: {candidates[0]!r}}}, or pass several to the treatment."
    )


def _check_names(choose: Mapping[str, str], spectral: set[str]) -> None:
    unknown = sorted(set(choose) - spectral)
    if unknown:
        raise SpectralError(
            f"pre_spectral_layers: expected the keys of choose to be spectral layers "
            f"({', '.join(map(repr, sorted(spectral)))}), got {', '.join(map(repr, unknown))}"
        )


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile, DDP or DataParallel. In other models, ``module`` is an ordinary submodule."""
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        return _unwrapped(inner)
    if isinstance(model, DataParallel | DistributedDataParallel):
        return _unwrapped(model.module)
    return model


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
