"""Build what a run trains from its configuration: network, optimizer, learning-rate schedule, hybrid switch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.optim.lr_scheduler import MultiStepLR

from spectralgrad.nn import SpectralModule, spectral_layers
from spectralgrad.rules import Method
from spectralgrad.training import HybridSwitch

from ... import networks, untrusted_json
from ...networks.user_network import accepts
from ..config.method_names import method_text
from ..config.run_config import FIELDS, Config, ConfigError
from ..processes.process_group import Group
from ..processes.synchronized_norm import release, synchronize
from ..storage.checkpoints import CheckpointError, load_weights
from ..storage.optimizer_state import SGD_MOMENTS, optimizer_reader, restore_optimizer
from ..storage.saved_state import read_tensor, reader_like
from .treatments import Penalty, orthogonality_penalty, treat_gradients


@dataclass
class Components:
    """What a run trains, and what trains it.

    Attributes:
        net: the network.
        model: the same network, or its DistributedDataParallel wrapper.
        optimizer: SGD.
        scheduler: lowers the learning rates at the milestones.
        switch: switches the method in the hybrid protocol; None without it.
        penalty: returns the term that is added to the loss; None without one.
    """

    net: nn.Module
    model: nn.Module
    optimizer: SGD
    scheduler: MultiStepLR
    switch: HybridSwitch | None
    penalty: Penalty | None

    @property
    def spectral(self) -> dict[str, SpectralModule]:
        """The spectral layers by name."""
        return spectral_layers(self.net)

    @property
    def method(self) -> str:
        """The method of the first spectral layer; empty if there is none."""
        return next((method_text(layer.method) for layer in self.spectral.values()), "")

    def advance(self) -> None:
        """Advance the schedules at the end of an epoch."""
        self.scheduler.step()
        if self.switch is not None:
            self.switch.step()

    def leave(self, group: Group) -> None:
        """Let go of the connections of the run; they close once nothing refers to them."""
        self.model = self.net
        if group.process_group is not None:
            release(self.net, group.process_group)

    def state(self) -> dict[str, Any]:
        """Everything needed to resume, as tensors and plain values."""
        schedule = self.scheduler.state_dict()
        return {
            "model": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": {**schedule, "milestones": sorted(schedule["milestones"].elements())},
            "switch": None if self.switch is None else self.switch.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a :meth:`state` that was read from a file.

        Raises:
            CheckpointError: the state does not fit this network.
        """
        saved = self._read(state, "state")
        try:
            self.net.load_state_dict(saved["model"])
            restore_optimizer(self.optimizer, saved["optimizer"])
        except (RuntimeError, ValueError) as problem:
            raise CheckpointError(f"the checkpoint belongs to another network: {problem}") from None
        schedule = saved["scheduler"]
        self.scheduler.load_state_dict({**schedule, "milestones": Counter(schedule["milestones"])})
        if self.switch is not None:
            self.switch.load_state_dict(saved["switch"])

    @property
    def _read(self) -> untrusted_json.Reader:
        """The reader of a state: every value must have the type and shape of the current one."""
        now = self.state()
        return untrusted_json.record(
            {
                "model": untrusted_json.mapping_of(read_tensor),
                "optimizer": optimizer_reader(self.optimizer, SGD_MOMENTS),
                "scheduler": reader_like(now["scheduler"]),
                "switch": reader_like(now["switch"]),
            }
        )


def build(config: Config, shape: tuple[int, int, int], classes: int, group: Group) -> Components:
    """Build all components; the initial weights come from the seed or from ``config.init``.

    Args:
        config: of the run.
        shape: channels, height and width of the images.
        classes: number of classes.
        group: the processes that train together.

    Raises:
        ConfigError: the network does not fit the rest of the configuration.
        CheckpointError: ``config.init`` belongs to another network.
    """
    net = networks.build(config, shape[0], shape[1], classes)
    example = torch.zeros(2, *shape)
    penalty = orthogonality_penalty(net, config, example)
    if config.init is not None:
        fine_tune(net, load_weights(config.init), config.init)
    net = net.to(group.device)
    optimizer = _optimizer(net, config)
    treat_gradients(net, config, example.to(group.device), optimizer)
    scheduler = MultiStepLR(optimizer, list(config.milestones), config.gamma)
    switch = _switch(net, config, scheduler)
    return Components(net, _distributed(net, config, group), optimizer, scheduler, switch, penalty)


def classifier(net: nn.Module) -> tuple[str, nn.Linear]:
    """The name of the last linear layer, and the layer.

    Example:
        >>> classifier(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
        ('2', Linear(in_features=4, out_features=2, bias=True))
    """
    found = [(name, module) for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    if not found:
        raise ConfigError(f"classifier_lr, init: expected a network with a linear layer, got {type(net).__name__}")
    return found[-1]


def fine_tune(net: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Load the weights of another run; a classifier for a different number of classes keeps its initial weights.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        >>> other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 7))
        >>> fine_tune(net, other.state_dict(), "other")
        >>> torch.equal(net[0].weight, other[0].weight)
        True
    """
    name, _ = classifier(net)
    own = net.state_dict()
    head = [key for key in own if key.startswith(f"{name}.")]
    other = any(key in weights and weights[key].shape != own[key].shape for key in head)
    taken = {key: value for key, value in weights.items() if not (other and key in head)}
    missing = sorted(set(own) - set(taken) - set(head if other else []))
    unknown = sorted(set(taken) - set(own))
    wrong = sorted(key for key in set(taken) & set(own) if taken[key].shape != own[key].shape)
    if missing or unknown or wrong:
        kinds = {"missing": missing, "not in the network": unknown, "of another shape": wrong}
        listed = "; ".join(f"{kind}: {', '.join(keys[:4])}" for kind, keys in kinds.items() if keys)
        raise CheckpointError(f"{source}: weights of another network ({listed})")
    net.load_state_dict(taken, strict=False)


def _optimizer(net: nn.Module, config: Config) -> SGD:
    groups: list[dict[str, Any]] = [{"params": list(net.parameters())}]
    if config.classifier_lr is not None:
        head = {id(p) for p in classifier(net)[1].parameters()}
        groups = [
            {"params": [p for p in net.parameters() if id(p) not in head]},
            {"params": [p for p in net.parameters() if id(p) in head], "lr": config.classifier_lr},
        ]
    return SGD(groups, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay)


def _switch(net: nn.Module, config: Config, scheduler: MultiStepLR) -> HybridSwitch | None:
    if config.hybrid is None:
        return None
    said = config.method != FIELDS["method"].default
    if ":" in config.network and not said and not accepts(config.network, "method"):
        return _OwnMethodsFirst(net, scheduler, config)
    return _InForm(net, scheduler, config, config.method)


class _InForm(HybridSwitch):
    """A hybrid switch between methods in the form that the configuration asks for."""

    def __init__(self, net: nn.Module, scheduler: MultiStepLR, config: Config, first: str | Method) -> None:
        assert config.hybrid is not None
        self._form = config.form
        super().__init__(
            net,
            scheduler,
            method=config.hybrid,
            warmup_epochs=config.warmup_epochs,
            first=first,
            postpone=config.postpone,
        )

    def _set(self) -> None:
        for layer in self.layers.values():
            method = self.method if self.switched else self.first
            layer.method = networks.in_form(self._form, method, layer)  # type: ignore[assignment]


class _OwnMethodsFirst(_InForm):
    """A hybrid switch that leaves every layer its own method until the switch."""

    def __init__(self, net: nn.Module, scheduler: MultiStepLR, config: Config) -> None:
        self._made_with = {name: layer.method for name, layer in spectral_layers(net).items()}
        assert config.hybrid is not None
        super().__init__(net, scheduler, config, config.hybrid)

    def _set(self) -> None:
        super()._set()
        for name, layer in self.layers.items():
            if not self.switched:
                layer.method = self._made_with[name]  # type: ignore[assignment]


def _distributed(net: nn.Module, config: Config, group: Group) -> nn.Module:
    """The network, wrapped if several processes train it. Only a user's own network may have unused parameters."""
    if group.world == 1:
        return net
    return DistributedDataParallel(
        synchronize(net, group.process_group),
        device_ids=[group.device] if group.device.type == "cuda" else None,
        process_group=group.process_group,
        find_unused_parameters=":" in config.network,
    )
