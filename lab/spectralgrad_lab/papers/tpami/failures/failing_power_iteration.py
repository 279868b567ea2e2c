"""Table 4, row PI: how long training with the released power iteration survives."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from ....comparison.results import Summary
from ....published.printed import printed
from ....training.config.presets import preset
from ...drawing import COLORS, canvas, dress
from ...registry import draws, trains
from ...small_protocol import columns, failures, seconds, seeded
from ...training import Settings, Training
from ...value_conditions import Value

TABLE_4 = printed("tpami")["table-4"]
SIZES, SEEDS, STEPS, BATCH = (4, 8, 16, 32, 64), 15, 500, 128
PROTOCOL: dict[str, Any] = {  # all else is the preset's: batches of 128, rate 0.1, published form, nothing renewed
    "method": "pi",
    "eps": 1e-4,
    "network": "resnet8",
    "width": 16,
    "train_size": STEPS * BATCH // 2,
    "epochs": 2,
    "milestones": (),
    "test_size": 1_000,
    "tensorboard": False,
    "workers": 0,
    "threads": 1,
}


def settings() -> Settings:
    """Power iteration for d = 4 … 64, 15 seeds each, as many as printed."""
    config = preset("tpami-cifar10").replaced(**PROTOCOL)
    return {f"d={d}": seeded(config.replaced(group_size=d), SEEDS) for d in SIZES}


@trains("tpami/training-power-iteration")
def survival(train: Training) -> Mapping[str, Value]:
    """The share of runs that complete, beside the printed one, and the steps after which the others failed."""
    found = train.run(settings())
    steps = {d: _steps(found[f"d={d}"]) for d in SIZES}
    table = columns(found, [f"d={d}" for d in SIZES])
    return {
        "d": list(SIZES),
        "success": [round(rate, 1) for rate in table["success"]],
        "success_published": TABLE_4["pi"]["success"],
        "mean": table["mean"],
        "median_steps": [median(steps[d]) for d in SIZES],
        **{f"steps_{d}": steps[d] for d in SIZES},
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


def _steps(summary: Summary) -> list[int]:
    """Steps taken by each run, in ascending order."""
    return sorted(STEPS if r.failure is None else r.failure.step for r in summary.results)


@draws("tpami/training-power-iteration")
def draw_survival(values: Mapping[str, Any]) -> Any:
    """The share of runs that have not failed, against the step; one line per dimension."""
    figure, axes = canvas(width=6.0)
    for d, color in zip(values["d"], COLORS.values(), strict=False):
        steps = values[f"steps_{d}"]
        failed = [step for step in steps if step < STEPS]
        alive = [100 * (1 - i / len(steps)) for i in range(len(failed) + 1)]
        axes.step(
            [1, *(step + 1 for step in failed), STEPS], [*alive, alive[-1]], where="post", color=color, label=f"d = {d}"
        )
    dress(axes, xlabel="training step", ylabel="runs that have not failed, per cent", xscale="log", ylim=(-3, 103))
    return figure
