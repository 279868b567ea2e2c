"""Checkpoints of the papers' released code, with the names and shapes of this package's networks.

Covered are the residual networks and AlexNet of Power-Iteration-SVD (NeurIPS 2019), Robust-Differentiable-SVD (TPAMI
2021), DifferentiableSVD (ICCV 2021, TPAMI 2022), fast-MPN-COV, RiemGCP, and the residual networks of DropCov.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spectralgrad.nn.functional import upper_triangle

from .alexnet import AlexNet
from .errors import NetworkError

# The first pattern that matches replaces its part of a name. Numbers are places in the Sequential of the released code.
_COMMON = (
    (r"^representation\.conv_dr_block\.", "head.reduction."),
    (r"^layer_reduce\.", "head.reduction.0."),
    (r"^layer_reduce_bn\.", "head.reduction.1."),
    (r"^eca_layer\.conv\.", "head.pooling.attention."),
)
_RESIDUAL = (
    (r"^features\.0\.", "conv1."),
    (r"^features\.1\.", "bn1."),
    *((rf"^features\.{n + 3}\.", f"layer{n}.") for n in range(1, 5)),
    (r"^classifier\.", "fc."),
)
_ALEXNET = tuple(
    (rf"^features\.{place + later}\.", f"{kind}{n}.")
    for n, place in enumerate((0, 4, 8, 11, 14), 1)
    for later, kind in enumerate(("conv", "bn"))
)
_WRAPPERS = r"(?:^|(?<=\.))module\."  # of DataParallel
_UNUSED = re.compile(r"\.eigenvector\d+-\d+$|^representation\.I$")  # starts of power iteration; an identity matrix
_GROUP = re.compile(r"(.*)running_subspace(\d+)$")


def read_released(path: str | Path) -> dict[str, Tensor]:
    """Read the state dict of a checkpoint, a ``.safetensors`` file or a file of ``torch.save``.

    Nothing is unpickled but tensors: ``torch.load`` is called with ``weights_only=True``.

    Args:
        path: of the file. The state dict may be the entry ``state_dict`` of a dictionary.

    Raises:
        NetworkError: the file contains no state dict.
    """
    if Path(path).suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    content: Any = torch.load(path, map_location="cpu", weights_only=True)
    state = content.get("state_dict", content) if isinstance(content, Mapping) else content
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise NetworkError(f"{path}: expected a state dict, or a dictionary with an entry 'state_dict'")
    return dict(state)


def from_released(state: Mapping[str, Tensor], net: nn.Module) -> dict[str, Tensor]:
    """A state dict of the released code as one of ``net``.

    * Names are translated, also from networks inside DataParallel.
    * The matrices ``running_subspace0``, … of a whitening layer become one ``running_whitening``, so ``net`` needs
      ``statistics="whitening"`` and as many groups; columns (C, 1) become vectors.
    * A classifier of whole matrices, :math:`d^2` features, becomes one of their upper triangles: the weights of (i, j)
      and (j, i) are added, which gives the same logits.

    Args:
        state: of the released network, as from :func:`read_released`.
        net: a network of this package, from :func:`~spectralgrad_lab.networks.build`.

    Returns:
        what ``net.load_state_dict`` accepts. Counters of batches, which the released code does not have, are taken from
        ``net``.

    Raises:
        NetworkError: entries are left over, missing, or have another shape; the message lists them.

    Example:
        >>> from spectralgrad_lab import Config
        >>> from spectralgrad_lab.networks import build
        >>> net = build(Config(network="resnet8", group_size=32, statistics="whitening", width=4), 3, 32, 10)
        >>> state = net.state_dict()
        >>> whitening = state.pop("bn1.running_whitening")                       # as in the released code
        >>> state |= {f"bn1.running_subspace{k}": matrix for k, matrix in enumerate(whitening)}
        >>> state["bn1.weight"] = state["bn1.weight"].unsqueeze(1)
        >>> net.load_state_dict(from_released({f"module.{name}": value for name, value in state.items()}, net))
        <All keys matched successfully>
    """
    own = net.state_dict()
    patterns = (*_COMMON, *(_ALEXNET if isinstance(net, AlexNet) else _RESIDUAL))
    found = _grouped({_renamed(name, patterns): value for name, value in state.items() if not _UNUSED.search(name)})
    found = {name: _shaped(value, own[name]) if name in own else value for name, value in found.items()}
    found |= {name: value for name, value in own.items() if name.endswith("num_batches_tracked") and name not in found}
    _check(found, own)
    return found


def _renamed(name: str, patterns: Iterable[tuple[str, str]]) -> str:
    name = re.sub(_WRAPPERS, "", name)
    for pattern, replacement in patterns:
        if re.match(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


def _grouped(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Stack the whitening matrices of the groups of a layer."""
    found = {name: value for name, value in state.items() if not _GROUP.match(name)}
    matrices: dict[str, dict[int, Tensor]] = {}
    for name, value in state.items():
        if match := _GROUP.match(name):
            matrices.setdefault(match[1], {})[int(match[2])] = value
    stacked = {f"{layer}running_whitening": [groups[k] for k in sorted(groups)] for layer, groups in matrices.items()}
    return found | {name: torch.stack(groups) for name, groups in stacked.items()}


def _shaped(value: Tensor, own: Tensor) -> Tensor:
    """Columns as vectors, and weights of whole matrices as weights of their upper triangles."""
    if value.dim() == 2 and own.dim() == 1 and value.shape == (len(own), 1):
        return value[:, 0]
    d = round(value.shape[1] ** 0.5) if value.dim() == 2 else 0
    if d and value.shape[1] == d * d and own.dim() == 2 and own.shape[1] == d * (d + 1) // 2:
        W = value.unflatten(1, (d, d))
        return upper_triangle(W + W.mT - torch.diag_embed(W.diagonal(dim1=-2, dim2=-1)))
    return value


def _check(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    faults = {
        "left over": sorted(found.keys() - own.keys()),
        "missing": sorted(own.keys() - found.keys()),
        "of another shape": [
            f"{name} {tuple(found[name].shape)}, expected {tuple(own[name].shape)}"
            for name in sorted(own.keys() & found.keys())
            if found[name].shape != own[name].shape
        ],
    }
    if any(faults.values()):
        said = "; ".join(f"{what}: {', '.join(names)}" for what, names in faults.items() if names)
        raise NetworkError(f"the checkpoint does not fit the network: {said}")
