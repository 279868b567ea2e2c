"""Show the progress of a run: a progress bar on a terminal, one line per epoch elsewhere."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Protocol, TextIO

from ..storage.records import Epoch, Result


class Step(NamedTuple):
    """A training step, as shown by a progress bar.

    Example:
        >>> Step(epoch=0, batch=3, batches=31, loss=2.2, error=80.0, images_per_second=900.0).batch
        3
    """

    epoch: int
    batch: int
    batches: int
    loss: float
    error: float
    images_per_second: float
    condition: float = math.nan


class Progress(Protocol):
    """Progress callbacks of a run."""

    def start(self, result: Result) -> None: ...
    def step(self, step: Step) -> None: ...
    def epoch(self, epoch: Epoch) -> None: ...
    def stop(self, result: Result) -> None: ...


class Silent:
    """Shows nothing.

    Example:
        >>> Silent().stop(None)
    """

    def start(self, result: Result) -> None:
        """Nothing."""

    def step(self, step: Step) -> None:
        """Nothing."""

    def epoch(self, epoch: Epoch) -> None:
        """Nothing."""

    def stop(self, result: Result) -> None:
        """Nothing."""


class Lines(Silent):
    """Prints one line per epoch.

    Example:
        >>> Lines().epoch(Epoch(0, 0.1, 1.5, 50.0, 1.2, 40.0, 2.0, 500.0, 20.0, 1e5, 9, "exact"))
        epoch   1  lr 0.1      loss 1.5000  error 50.00 %  test 1.2000  40.00 %  500 images/s  κ 1.0e+05  exact
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def epoch(self, epoch: Epoch) -> None:
        print(epoch_line(epoch), file=self._stream or sys.stdout, flush=True)


class Bar(Silent):
    """A progress bar with loss, error, speed and condition number, and one line per epoch above it; needs rich."""

    def __init__(self, console: Any = None) -> None:
        self._bar = bar(console)
        self._task: Any = None

    def start(self, result: Result) -> None:
        self._epochs = result.config.epochs
        self._bar.start()

    def step(self, step: Step) -> None:
        name = f"epoch {step.epoch + 1} of {self._epochs}"
        if self._task is None:
            self._task = self._bar.add_task(name, total=step.batches, said="")
        said = f"loss {step.loss:.3f}  error {step.error:.1f} %  {step.images_per_second:.0f} images/s"
        self._bar.update(
            self._task,
            description=name,
            total=step.batches,
            completed=step.batch,
            said=said + _condition(step.condition),
        )

    def epoch(self, epoch: Epoch) -> None:
        self._bar.console.print(epoch_line(epoch), highlight=False, soft_wrap=True)
        if self._task is not None:
            self._bar.reset(self._task, said="")

    def stop(self, result: Result) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        self._bar.stop()


def epoch_line(epoch: Epoch) -> str:
    """One line that describes an epoch."""
    return (
        f"epoch {epoch.epoch + 1:3d}  lr {epoch.lr:<7.4g}  loss {epoch.train_loss:.4f}  "
        f"error {epoch.train_error:.2f} %  test {epoch.test_loss:.4f}  {epoch.test_error:.2f} %{_top5(epoch)}  "
        f"{epoch.images_per_second:.0f} images/s"
        f"{_condition(epoch.condition)}{f'  {epoch.method}' if epoch.method else ''}"
    )


def for_terminal(stream: TextIO | None = None) -> Progress:
    """A bar if the stream (default: stdout) is a terminal and rich is installed, otherwise one line per epoch.

    Example:
        >>> import io
        >>> type(for_terminal(io.StringIO())).__name__
        'Lines'
    """
    console = console_of(stream)
    return Lines(stream) if console is None else Bar(console)


def bar(console: Any = None) -> Any:
    """A progress bar of rich whose task has a field ``said`` beside the bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
        console=console,
    )


def console_of(stream: TextIO | None = None) -> Any:
    """A console of rich if the stream (default: stdout) is a terminal and rich is installed, otherwise None."""
    wanted = stream or sys.stdout
    if not wanted.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=wanted)


def _top5(epoch: Epoch) -> str:
    return "" if epoch.test_top5 is None else f"  top-5 {epoch.test_top5:.2f} %"


def _condition(value: float) -> str:
    return "" if math.isnan(value) else f"  κ {value:.1e}"
