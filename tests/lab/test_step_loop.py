"""A run over numbered steps is resumed to the same numbers, logs nothing twice, and says why it failed."""

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.optim import Adam

from spectralgrad_lab.training.config.settings import ConfigError, setting
from spectralgrad_lab.training.config.step_settings import StepSettings
from spectralgrad_lab.training.loop.loss_step import Learner
from spectralgrad_lab.training.loop.step_loop import run_steps
from spectralgrad_lab.training.loop.step_progress import SilentSteps, StepBar, StepLines
from spectralgrad_lab.training.processes.interrupts import Stopped
from spectralgrad_lab.training.storage.checkpoints import CheckpointError, load, load_weights
from spectralgrad_lab.training.storage.optimizer_state import ADAM_MOMENTS, optimizer_reader, restore_optimizer
from spectralgrad_lab.training.storage.resuming import RunExistsError

from .helpers import Interrupting, forge
from .test_resume import same, scalars


@dataclass(frozen=True)
class Settings(StepSettings):
    changeable: ClassVar[frozenset[str]] = StepSettings.changeable
    explode: int = setting(-1, "training", "step at which the loss is not finite")


CONFIG = Settings(steps=7, log_every=2, tensorboard=False, checkpoint_minutes=60)


class Task:
    """A line fitted to random points: weights, moments and random numbers to remember."""

    def __init__(self, config, now):
        self.config, self.net, self.seen = config, nn.Linear(2, 1), []
        self.optimizer = Adam(self.net.parameters(), config.lr)
        self.learner = Learner(self.net, self.optimizer, {"error": 1.0, "size": 0.1}, now.group)

    def step(self, number):
        x = torch.randn(4, 2)
        scale = float("nan") if number == self.config.explode else 1.0

        def losses():
            return {
                "error": scale * (self.net(x) - x.sum(1, keepdim=True)).square().mean(),
                "size": self.net.bias.abs().sum(),
            }

        return self.learner(losses)

    def after(self, number):
        self.seen.append(number)

    def state(self):
        return {"model": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state):
        saved = optimizer_reader(self.optimizer, ADAM_MOMENTS)(state["optimizer"], "optimizer")
        self.net.load_state_dict(state["model"])
        restore_optimizer(self.optimizer, saved)


def trained(config, folder=None, **options):
    return run_steps(config, lambda now: Task(config, now), folder, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return trained(CONFIG, folder), folder


def rows(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("after", [1, 2, 3, 6])
def test_a_stopped_run_goes_on_to_the_same_numbers(after, whole, tmp_path):
    with pytest.raises(Stopped):
        trained(CONFIG, tmp_path, progress=Interrupting(after))
    assert load(tmp_path)["result"]["step"] == after + 1  # the signal takes effect at the end of the next step
    result = trained(CONFIG, tmp_path, resume=True)
    assert (result.status, result.step, result.losses) == ("done", 7, whole[0].losses)
    assert rows(tmp_path) == rows(whole[1])
    a, b = load(tmp_path), load(whole[1])
    assert all(same(a[part], b[part]) for part in ("model", "optimizer", "random"))


def test_rows_after_the_checkpoint_are_written_again(whole, tmp_path):
    class Dying(SilentSteps):
        def step(self, step):
            if step.step == 6:
                raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        trained(CONFIG, tmp_path, progress=Dying())
    assert [row["step"] for row in rows(tmp_path)] == [1, 3, 5]
    assert load(tmp_path) is None
    trained(CONFIG, tmp_path, resume=True)
    assert rows(tmp_path) == rows(whole[1])


def test_the_log_has_the_means_since_its_last_line(tmp_path, whole):
    trained(CONFIG.replaced(log_every=1), tmp_path)
    every = [row["error"] for row in rows(tmp_path)]
    assert [row["error"] for row in rows(whole[1])] == pytest.approx([sum(every[i : i + 2]) / 2 for i in (0, 2, 4)])


def test_tensorboard_has_every_line_once(tmp_path):
    config = CONFIG.replaced(tensorboard=True)
    for after in (2, 2):
        with pytest.raises(Stopped):
            trained(config, tmp_path, resume=True, progress=Interrupting(after))
    trained(config, tmp_path, resume=True)
    assert scalars(tmp_path)["error"] == [1, 3, 5]


def test_a_finished_run_is_returned_and_can_be_made_longer(whole, tmp_path):
    trained(CONFIG.replaced(steps=4), tmp_path)
    stamp = (tmp_path / "result.json").stat().st_mtime_ns
    assert trained(CONFIG.replaced(steps=4), tmp_path, resume=True).step == 4
    assert (tmp_path / "result.json").stat().st_mtime_ns == stamp
    assert trained(CONFIG, tmp_path, resume=True).losses == whole[0].losses
    with pytest.raises(ConfigError, match=r"longer run of 7 steps; expected at least as many, or another --out, got 3"):
        trained(CONFIG.replaced(steps=3), tmp_path, resume=True)


def test_a_run_is_not_overwritten_nor_continued_by_another(whole):
    with pytest.raises(RunExistsError, match=r"already contains a run \(done, 7 of 7 steps\); pass --resume"):
        trained(CONFIG, whole[1])
    with pytest.raises(ConfigError, match=r"contains another run: lr was 0\.0001, is 0\.1; seed was 0, is 1"):
        trained(CONFIG.replaced(seed=1, lr=0.1), whole[1], resume=True)


def test_a_failure_is_recorded_with_step_and_reason(tmp_path):
    result = trained(CONFIG.replaced(explode=3), tmp_path)
    assert (result.status, result.step, str(result.failure)) == ("failed", 3, "step 3: the loss is not finite")
    again = trained(CONFIG.replaced(explode=3), tmp_path, resume=True)
    assert again.failure == result.failure


def test_weights_are_found_by_the_folder(whole):
    assert set(load_weights(whole[1])) == {"weight", "bias"}


def test_damage_is_told_with_the_file(tmp_path):
    trained(CONFIG.replaced(steps=2), tmp_path)
    content = json.loads((tmp_path / "checkpoint.json").read_text("utf-8"))
    content["state"]["optimizer"]["state"]["0"]["step"] = "many"
    forge(tmp_path, content)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: .*optimizer\.state\.0\.step: expected a tensor"):
        trained(CONFIG, tmp_path, resume=True)
    (tmp_path / "result.json").write_text("{}", "utf-8")
    with pytest.raises(CheckpointError, match=r"result\.json: not a result"):
        trained(CONFIG, tmp_path, resume=True)


def test_random_states_and_threads_are_those_of_the_caller_afterwards():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    trained(CONFIG.replaced(threads=1))
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads


def test_progress_shows_the_losses(capsys):
    trained(CONFIG, progress=StepLines())
    out = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in out] == ["step 2 of 7", "step 4 of 7", "step 6 of 7"]
    assert "error " in out[0]
    console = pytest.importorskip("rich.console").Console(force_terminal=True, width=120)
    trained(CONFIG, progress=StepBar(console))
    assert "7/7" in capsys.readouterr().out
