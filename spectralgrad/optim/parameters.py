"""Finds the parameters that a treatment applies to, given tensors or layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.optim import Optimizer

from ..errors import ShapeError, SpectralError, check_layout
from ..nn.orthogonal import OrthogonalConv2d
from .tracing import PreSpectral

One = Tensor | nn.Module | PreSpectral
Chosen = One | Iterable[One] | Mapping[str, PreSpectral]


@dataclass(frozen=True, eq=False)
class Target:
    """A parameter to treat, and whether the weight computed from it is orthogonal by construction."""

    parameter: Tensor
    orthogonal: bool = False


def targets(parameters: Chosen, optimizer: Optimizer, operation: str) -> list[Target]:
    """The parameters to treat, without duplicates.

    Raises:
        SpectralError: nothing is given, or a parameter does not belong to the optimiser, is ambiguous or is sharded.
        ShapeError: a parameter has fewer than two dimensions.
    """
    chosen = _listed(parameters)
    if not chosen:
        raise SpectralError(f"{operation}: expected parameters to be at least one tensor or layer, got none")
    found: dict[int, Target] = {}
    for item in chosen:
        target = _target(item, operation)
        known = found.get(id(target.parameter))
        found[id(target.parameter)] = target if known is None or target.orthogonal else known
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for target in found.values():
        _check(target.parameter, operation, id(target.parameter) in stepped)
    return list(found.values())


def _listed(parameters: Chosen) -> list[One]:
    if isinstance(parameters, Tensor | nn.Module | PreSpectral):
        return [parameters]
    return list(parameters.values() if isinstance(parameters, Mapping) else parameters)


def _target(item: One, operation: str) -> Target:
    if isinstance(item, PreSpectral):
        item = item.module
    if isinstance(item, Tensor):
        return Target(item)
    if isinstance(item, nn.Module):
        return Target(_weight(item, operation), _orthogonal(item))
    raise SpectralError(
        f"{operation}: expected parameters to be tensors or modules, got {type(item).__name__}; "
        "pass the object, such as model.conv1 or model.conv1.weight"
    )


def _weight(module: nn.Module, operation: str) -> Tensor:
    """The tensor that the optimiser updates: the weight, or the original tensor of a parametrised weight."""
    if parametrize.is_parametrized(module, "weight"):
        originals: Any = module.parametrizations["weight"]  # type: ignore[index, operator]
        if isinstance(getattr(originals, "original", None), Tensor):
            return originals.original
        names = [name for name, _ in originals.named_parameters(recurse=False)]
        raise SpectralError(
            f"{operation}: the weight of {type(module).__name__} is computed from several tensors "
            f"({', '.join(names)}); pass one of them, such as layer.parametrizations.weight.{names[-1]}"
        )
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        raise SpectralError(f"{operation}: expected a layer with a weight, got {type(module).__name__}")
    return weight


def _orthogonal(module: nn.Module) -> bool:
    if isinstance(module, OrthogonalConv2d):
        return True
    if not parametrize.is_parametrized(module, "weight"):
        return False
    return any(isinstance(p, parametrizations._Orthogonal) for p in module.parametrizations["weight"])  # type: ignore


def _check(parameter: Tensor, operation: str, stepped: bool) -> None:
    check_layout(parameter, f"{operation}, parameters")
    shape = tuple(parameter.shape)
    if parameter.dim() < 2:
        raise ShapeError(
            f"{operation}: expected parameters that are matrices or filters (≥ 2 dimensions), got one of shape {shape}"
        )
    if not stepped:
        raise SpectralError(
            f"{operation}: expected parameters of the optimiser, got one of shape {shape} in none of its groups; "
            "for a parametrised weight pass the layer, or layer.parametrizations.weight.original"
        )
    if type(parameter).__name__ == "DTensor":
        raise SpectralError(
            f"{operation}: expected a parameter that this process holds in full, got a sharded DTensor of shape "
            f"{shape}; exclude it from sharding"
        )
