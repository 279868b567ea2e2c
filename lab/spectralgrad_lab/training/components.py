"""Everything that learns, made from a configuration: network, optimizer, schedule, hybrid switch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.optim.lr_scheduler import MultiStepLR

from spectralgrad.nn import SpectralModule
from spectralgrad.rules import Method
from spectralgrad.training import HybridSwitch

from .. import networks, untrusted_json
from ..networks.user_network import asks_for
from .checkpoints import CheckpointError, load_weights
from .config import FIELDS, Config, ConfigError
from .method_names import text_of
from .process_group import Group
from .saved_state import like, tensor
from .synchronized_norm import release, synchronize
from .treatments import Penalty, orthogonality_penalty, treat_gradients


@dataclass
class Parts:
    """What a run trains, and what it trains it with.

    Attributes:
        net: the network.
        model: the same, or what spreads it over processes.
        optimizer: SGD.
        scheduler: lowers its rates at milestones.
        switch: of the hybrid protocol, if it is followed.
        penalty: what is added to the loss, if anything.
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
        return networks.spectral_layers(self.net)

    @property
    def method(self) -> str:
        """The method of the first spectral layer; empty without one."""
        return next((text_of(layer.method) for layer in self.spectral.values()), "")

    def advance(self) -> None:
        """An epoch has ended."""
        self.scheduler.step()
        if self.switch is not None:
            self.switch.step()

    def leave(self, group: Group) -> None:
        """Train no more, and close the connections of the run: other processes wait no longer for this one."""
        self.model = self.net
        if group.line is not None:
            release(self.net, group.line)
        group.leave(failed=True)

    def state(self) -> dict[str, Any]:
        """Tensors and plain values, enough to go on."""
        schedule = self.scheduler.state_dict()
        return {
            "model": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": {**schedule, "milestones": sorted(schedule["milestones"].elements())},
            "switch": None if self.switch is None else self.switch.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state` that has been through a file.

        Raises:
            CheckpointError: it is the state of another network, or of none.
        """
        saved = self._read(state, "state")
        try:
            self.net.load_state_dict(saved["model"])
            moments = {int(index): values for index, values in saved["optimizer"]["state"].items()}
            self.optimizer.load_state_dict({**saved["optimizer"], "state": moments})
            self.optimizer._opt_called = True  # type: ignore[attr-defined]  # by the process that saved
        except (RuntimeError, ValueError) as problem:
            raise CheckpointError(f"the checkpoint is of another network: {problem}") from None
        schedule = saved["scheduler"]
        self.scheduler.load_state_dict({**schedule, "milestones": Counter(schedule["milestones"])})
        if self.switch is not None:
            self.switch.load_state_dict(saved["switch"])

    @property
    def _read(self) -> untrusted_json.Reader:
        """Of a state: everything in it is of the kind of what there is now."""
        now = self.state()
        trained = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        moment = {
            str(i): untrusted_json.record({"momentum_buffer": untrusted_json.maybe(like(p))})
            for i, p in enumerate(trained)
        }
        optimizer = {"state": untrusted_json.record({}, moment), "param_groups": like(now["optimizer"]["param_groups"])}
        return untrusted_json.record(
            {
                "model": untrusted_json.table(tensor),
                "optimizer": untrusted_json.record(optimizer),
                "scheduler": like(now["scheduler"]),
                "switch": like(now["switch"]),
            }
        )


def build(config: Config, shape: tuple[int, int, int], classes: int, group: Group) -> Parts:
    """All parts, the weights as the seed or ``config.init`` says.

    Args:
        config: of the run.
        shape: channels, height and width of an image.
        classes: how many.
        group: over which processes.

    Raises:
        ConfigError: the network does not suit the rest of the configuration.
        CheckpointError: ``config.init`` is of another network.
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
    return Parts(net, _spread(net, config, group), optimizer, scheduler, switch, penalty)


def classifier(net: nn.Module) -> tuple[str, nn.Linear]:
    """The last linear layer, by name.

    Example:
        >>> classifier(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
        ('2', Linear(in_features=4, out_features=2, bias=True))
    """
    found = [(name, module) for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    if not found:
        raise ConfigError(f"classifier_lr, init: {type(net).__name__} has no linear layer to take for a classifier")
    return found[-1]


def fine_tune(net: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Start from the weights of another run; a classifier for other classes stays as it is.

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
        raise CheckpointError(f"{source}: the weights of another network ({listed})")
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
    if ":" in config.network and not said and not asks_for(config.network, "method"):
        return _OwnFirst(net, scheduler, config.hybrid, config.warmup_epochs)
    return HybridSwitch(net, scheduler, method=config.hybrid, warmup_epochs=config.warmup_epochs, first=config.method)


class _OwnFirst(HybridSwitch):
    """Before the switch every layer uses the method that it was made with."""

    def __init__(self, net: nn.Module, scheduler: MultiStepLR, method: str | Method, warmup_epochs: int) -> None:
        self._made_with = {name: layer.method for name, layer in networks.spectral_layers(net).items()}
        super().__init__(net, scheduler, method=method, warmup_epochs=warmup_epochs, first=method)

    def _set(self) -> None:
        for name, layer in self.layers.items():
            layer.method = self.method if self.switched else self._made_with[name]  # type: ignore[assignment]


def _spread(net: nn.Module, config: Config, group: Group) -> nn.Module:
    """Over processes. A network of one's own may have parameters that it does not use."""
    if group.world == 1:
        return net
    return DistributedDataParallel(
        synchronize(net, group.line),
        device_ids=[group.device] if group.device.type == "cuda" else None,
        process_group=group.line,
        find_unused_parameters=":" in config.network,
    )
