"""Show the progress of a run over numbered steps: a bar on a terminal, one line per line of the log elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TextIO

from ..storage.step_records import StepResult
from .progress import bar, console_of


class TakenStep(NamedTuple):
    """A step that was taken.

    Attributes:
        step: the steps taken so far.
        steps: of the run.
        losses: of this step, or the means since the last line of the log if there is a new one.
        seconds: of this step.
        logged: whether there is a new line of the log.

    Example:
        >>> TakenStep(3, 10, {"loss": 0.5}, 1.0, False).step
        3
    """

    step: int
    steps: int
    losses: Mapping[str, float]
    seconds: float
    logged: bool

    @property
    def text(self) -> str:
        """The losses and the time of the step."""
        return "  ".join(
            [*(f"{name} {value:.4g}" for name, value in self.losses.items()), f"{self.seconds:.2f} s/step"]
        )


class StepProgress(Protocol):
    """Progress callbacks of a run over numbered steps."""

    def start(self, result: StepResult[Any]) -> None: ...
    def step(self, step: TakenStep) -> None: ...
    def stop(self, result: StepResult[Any]) -> None: ...


class SilentSteps:
    """Shows nothing."""

    def start(self, result: StepResult[Any]) -> None:
        """Nothing."""

    def step(self, step: TakenStep) -> None:
        """Nothing."""

    def stop(self, result: StepResult[Any]) -> None:
        """Nothing."""


class StepLines(SilentSteps):
    """Prints one line per line of the log.

    Example:
        >>> StepLines().step(TakenStep(10, 20, {"loss": 0.5}, 0.25, logged=True))
        step 10 of 20  loss 0.5  0.25 s/step
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def step(self, step: TakenStep) -> None:
        if step.logged:
            text = f"step {step.step} of {step.steps}  {step.text}"
            print(text, file=self._stream or sys.stdout, flush=True)


class StepBar(SilentSteps):
    """A progress bar with the losses beside it, which change with the log; needs rich."""

    def __init__(self, console: Any = None) -> None:
        self._bar = bar(console)

    def start(self, result: StepResult[Any]) -> None:
        self._task = self._bar.add_task("step", total=result.config.steps, completed=result.step, said="")
        self._bar.start()

    def step(self, step: TakenStep) -> None:
        said = {"said": step.text} if step.logged else {}
        self._bar.update(self._task, completed=step.step, **said)

    def stop(self, result: StepResult[Any]) -> None:
        self._bar.stop()


def steps_for_terminal(stream: TextIO | None = None) -> StepProgress:
    """A bar if the stream (default: stdout) is a terminal and rich is installed, otherwise lines.

    Example:
        >>> import io
        >>> type(steps_for_terminal(io.StringIO())).__name__
        'StepLines'
    """
    console = console_of(stream)
    return StepLines(stream) if console is None else StepBar(console)
