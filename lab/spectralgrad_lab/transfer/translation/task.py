"""Training of the translation network: one step of the discriminators, then one of the generators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.optim import Adam

from ... import untrusted_json
from ...training.config.settings import ConfigError
from ...training.loop.failures import FailureWatch
from ...training.loop.loss_step import Learner
from ...training.processes.surroundings import Session
from ...training.storage.checkpoints import CheckpointError
from ...training.storage.optimizer_state import ADAM_MOMENTS, optimizer_reader, restore_optimizer
from ...training.storage.saved_state import reader_like
from ..pictures.random_crops import RandomCrops
from .config import TranslationConfig
from .losses import Translation, discriminator_losses, generator_losses, translate
from .networks import Discriminators, Generators
from .sample_sheets import sample_sheet, write_sheet

BETAS = (0.5, 0.999)
SAMPLES = 4
"""Rows of a sheet of samples."""
_SAMPLE_STEP = 2**32 - 1  # no run gets there, so the samples are drawn like a batch but independently of all of them


class TranslationTask:
    """What a translation run trains; see :class:`~spectralgrad_lab.training.loop.step_loop.StepTask`.

    Both steps use the same translated images: the discriminators learn first, and do not change the generators.

    Args:
        config: of the run.
        now: the session of the run.

    Raises:
        ConfigError: the processes cannot share a batch, or a folder is not given.
        DataError: a folder does not exist or contains no image.
        PictureError: an image is damaged or too small.
    """

    def __init__(self, config: TranslationConfig, now: Session) -> None:
        self.config, self.now = config, now
        if config.batch_size % now.group.world:
            raise ConfigError(
                f"batch_size: expected a multiple of the {now.group.world} processes, got {config.batch_size}"
            )
        self.crops = _crops(config)
        self.generators = Generators(config).to(now.group.device)
        self.discriminators = Discriminators(config).to(now.group.device)
        self.net = nn.ModuleDict({"generators": self.generators, "discriminators": self.discriminators})
        self.optimizers = {name: self._adam(net) for name, net in self.net.items()}
        watch = FailureWatch(self.net)
        weights = {"generators": config.loss_weights, "discriminators": {"discriminator": 1.0}}
        self._learners = {
            name: Learner(net, self.optimizers[name], weights[name], now.group, watch) for name, net in self.net.items()
        }

    def _adam(self, net: nn.Module) -> Adam:
        return Adam(net.parameters(), self.config.lr, BETAS, weight_decay=self.config.weight_decay)

    def step(self, number: int) -> dict[str, float]:
        """Take a step; returns the losses and the mean blend of the hops."""
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.config.rate(number)
        values = self._learn(self._images(number))
        for generator in self.generators.both:
            generator.project()
        blends = [blend for generator in self.generators.both for blend in generator.blends]
        return {**values, "blend": sum(blends) / len(blends)}

    def _learn(self, images: tuple[Tensor, Tensor]) -> dict[str, float]:
        """Translate, let the discriminators learn, then the generators; returns all losses."""
        generators, judges = self.generators.both, self.discriminators.both
        made: list[Translation] = []

        def judged() -> Mapping[str, Tensor]:
            made[:] = [translate(*generators, *images)]
            return discriminator_losses(judges, images, made[0])

        found = self._learners["discriminators"](judged)
        with _frozen(self.discriminators):
            values = self._learners["generators"](lambda: generator_losses(generators, judges, images, made[0]))
        return {**values, **found}

    def _images(self, step: int) -> tuple[Tensor, Tensor]:
        """The part of this process in the batches of a step, from −1 to 1."""
        group, count = self.now.group, self.config.batch_size
        a, b = (crops.batch(step, count, rank=group.rank, world=group.world, dequantize=True) for crops in self.crops)
        return a.to(group.device) * 2 - 1, b.to(group.device) * 2 - 1

    def after(self, number: int) -> None:
        """Draw a sheet of samples if one is due."""
        every, done = self.config.sample_every, number + 1
        due = done == self.config.steps or (every > 0 and done % every == 0)
        if due and self.now.written is not None:
            a, b = (crops.batch(_SAMPLE_STEP, SAMPLES).to(self.now.group.device) * 2 - 1 for crops in self.crops)
            write_sheet(self.now.written, done, sample_sheet(self.generators, a, b))

    def state(self) -> dict[str, Any]:
        """Weights and the moments of both optimizers."""
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {"model": self.net.state_dict(), "optimizers": optimizers}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a :meth:`state`.

        Raises:
            ValueError: it belongs to another network, or is damaged.
        """
        readers = {name: optimizer_reader(optimizer, ADAM_MOMENTS) for name, optimizer in self.optimizers.items()}
        read = untrusted_json.record(
            {"model": reader_like(self.net.state_dict()), "optimizers": untrusted_json.record(readers)}
        )
        try:
            saved = read(state, "state")
        except ValueError as problem:
            raise CheckpointError(f"the checkpoint belongs to another network: {problem}") from None
        self.net.load_state_dict(saved["model"])
        for name, optimizer in self.optimizers.items():
            restore_optimizer(optimizer, saved["optimizers"][name])


def _crops(config: TranslationConfig) -> tuple[RandomCrops, RandomCrops]:
    """The crops of both domains, by different random numbers."""
    if config.a is None or config.b is None:
        raise ConfigError("expected two folders of images: pass --a DIR and --b DIR")
    a, b = (
        RandomCrops(folder, size=config.size, resize=config.first_side, seed=2 * config.seed + i)
        for i, folder in enumerate((config.a, config.b))
    )
    return a, b


@contextmanager
def _frozen(net: nn.Module) -> Iterator[None]:
    """Context in which a network computes no gradients of its parameters."""
    net.requires_grad_(False)
    try:
        yield
    finally:
        net.requires_grad_(True)
