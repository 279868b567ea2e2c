"""The hybrid protocol, NOG and the monitor under a Lightning trainer; skipped where Lightning is not installed."""

import logging
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import spectralgrad as sg
from spectralgrad.training import lightning as ours

from .small_networks import batch, linear_net

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other people's deprecations at import
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed (extra [dev])")

pytestmark = [
    pytest.mark.runs,
    pytest.mark.filterwarnings("ignore::UserWarning:lightning.*", "ignore::FutureWarning", "ignore:.*litlogger.*"),
]


class Module(lightning.LightningModule):
    def __init__(self, nog=False):
        super().__init__()
        self.net, self.nog, self.seen = linear_net(), nog, []

    def training_step(self, sample, index):
        self.seen.append((self.current_epoch, self.net[1].method.name, self.optimizers().param_groups[0]["lr"]))
        x, y = sample
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        if self.nog:
            sg.optim.NearestOrthogonalGradient(optimizer, self.net[0])
        return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])]


def fit(module, epochs, tmp_path, callbacks=(), resume=None):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, default_root_dir=tmp_path, callbacks=list(callbacks),
    )  # fmt: skip
    loader = DataLoader(TensorDataset(*batch(0)), batch_size=16, num_workers=0)
    trainer.fit(module, loader, ckpt_path=resume)
    return trainer


@pytest.mark.parametrize("postpone", [False, True])
def test_the_callback_follows_the_protocol_and_resumes(tmp_path, postpone):
    through = Module()
    fit(through, 6, tmp_path, [ours.HybridSwitchCallback(warmup_epochs=1, postpone=postpone)])
    switch, decay = (4, 5) if postpone else (3, 4)
    for epoch, name, lr in through.seen:
        assert name == ("svd-pade" if epoch >= switch else "newton-schulz")
        assert lr == pytest.approx(0.1 if epoch < 2 else 0.01 if epoch < decay else 0.001)
    first = Module()
    trainer = fit(first, 4, tmp_path, [ours.HybridSwitchCallback(warmup_epochs=1, postpone=postpone)])
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    second = Module()
    fit(second, 6, tmp_path, [ours.HybridSwitchCallback(warmup_epochs=1, postpone=postpone)], tmp_path / "run.ckpt")
    assert first.seen + second.seen == through.seen
    for x, y in zip(through.parameters(), second.parameters(), strict=True):
        assert torch.equal(x, y)


def test_a_scheduler_stepped_after_every_batch_counts_batches(tmp_path):
    module = Module()

    def configure():
        (optimizer,), (scheduler,) = Module.configure_optimizers(module)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    module.configure_optimizers = configure
    fit(module, 4, tmp_path, [ours.HybridSwitchCallback(warmup_epochs=1)])
    names = ["newton-schulz"] * 3 + ["svd-pade"] * 5  # two batches an epoch, the last decay after four
    rates = [0.1] * 2 + [0.01] * 2 + [0.001] * 4
    assert [name for _, name, _ in module.seen] == names
    assert [lr for *_, lr in module.seen] == pytest.approx(rates)


def test_the_epochs_of_the_trainer_count_when_the_decay_is_given(tmp_path):
    module = Module()
    fit(module, 4, tmp_path, [ours.HybridSwitchCallback(decay_epoch=3, warmup_epochs=1)])
    assert [(epoch, name) for epoch, name, _ in module.seen[::2]] == [
        (0, "newton-schulz"), (1, "newton-schulz"), (2, "svd-pade"), (3, "svd-pade"),
    ]  # fmt: skip


def test_treatments_work_with_the_closures_that_lightning_passes(tmp_path):
    module = Module(nog=True)
    before = module.net[0].weight.detach().clone()
    with sg.diagnostics.Monitor(module, every=1) as monitor:
        trainer = fit(module, 1, tmp_path)
    assert trainer.global_step == 2
    singular = torch.linalg.svdvals(module.net[0].weight.grad)
    assert [r.step for r in monitor.records] == [0, 1]
    assert all(r.gradient_norm > 0 for r in monitor.records)
    assert not torch.equal(before, module.net[0].weight)
    assert torch.allclose(singular, torch.ones_like(singular))


def test_no_scheduler_and_no_epoch_is_an_error(tmp_path):
    module = Module()
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(sg.SpectralError, match="learning-rate scheduler, got none; pass decay_epoch"):
        fit(module, 1, tmp_path, [ours.HybridSwitchCallback()])
