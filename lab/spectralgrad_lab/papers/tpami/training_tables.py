"""Tables 3, 4 and 5 at small size: which gradients fail, at which ε, degree and group size; plain SVD for longer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

from ...comparison.results import Summary
from ...published.printed import printed
from ..convergence import TRAIN, apart
from ..drawing import COLORS, canvas, dress
from ..registry import draws, trains
from ..small_protocol import EASIER, SEEDS, columns, failures, prefixed, seconds, seeded, small, versus
from ..training import Settings, Training
from ..training_pictures import Panel, rows_with_bars
from ..value_conditions import Value

TABLE_3, TABLE_4, TABLE_5 = (printed("tpami")[f"table-{number}"] for number in (3, 4, 5))
BATCHNORM = "batchnorm"
SIZES = (4, 8, 16, 32, 64)
EPS = {"pi": 1e-4, "svd-pi": 1e-4}
TABLE_SIZE = {**EASIER, "train_size": 1_500, "test_size": 2_000, "renew_batches": 10}  # for 90 runs
LONGER_SIZE = {**EASIER, "train_size": 3_000, "test_size": 3_000}
METHODS = ("svd", "pi", "svd-clip", "svd-pi", "svd-taylor", "exact")
FIRST_EPOCHS: dict[str, Any] = {"train_size": 5_000, "test_size": 2_000}
WHITENED = (4, 16, 64)
LONGER_SIZES, LONGER_EPOCHS, LONGER_MILESTONES = (4, 8, 16), 6, (4, 5)
VARIANTS = {"clamped": "svd:clamp=0.01", "sound": "svd"}  # with and without Algorithm 2, line 5
PRECISIONS = ("float32", "float64")
REPEATED = ("clamped", "float32")


def taylor_settings() -> Settings:
    """Table 3: ε and degree of SVD-Taylor at d = 64, with eight seeds as printed."""
    return {
        f"ε = {eps:g}, K = {degree}": seeded(
            small("tpami-cifar100", method=f"svd-taylor:degree={degree}", eps=eps, group_size=64, **FIRST_EPOCHS),
            TABLE_3["runs"],
        )
        for eps, degree in zip(TABLE_3["eps"], TABLE_3["degree"], strict=True)
    }


@trains("tpami/training-table-3")
def taylor(train: Training) -> Mapping[str, Value]:
    """Success and errors of the three settings, beside those printed."""
    settings = taylor_settings()
    found = train.run(settings)
    first, _, last = settings
    between = versus(found, [first], last)
    return {
        "settings": list(settings),
        **columns(found, settings),
        **{f"{name}_published": TABLE_3[name] for name in ("success", "mean")},
        "difference": between["difference"][0],
        "difference_published": round(TABLE_3["mean"][0] - TABLE_3["mean"][-1], 3),
        "standard_error": between["standard_error"][0],
        "largest_test_loss": [max(e.test_loss for r in found[name].results for e in r.epochs) for name in settings],
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


def table_settings() -> Settings:
    """Table 4: methods and group sizes, each method with its ε, and the exact gradient."""
    return {
        f"{method} d={d}": seeded(
            small("tpami-cifar10", method=method, group_size=d, eps=EPS.get(method, 1e-2), **TABLE_SIZE),
        )
        for d, method in product(SIZES, METHODS)
    }


@trains("tpami/training-table-4")
def table(train: Training) -> Mapping[str, Value]:
    """Success and errors of every method for d = 4 … 64, beside those printed, and differences from exact."""
    found = train.run(table_settings())
    values: dict[str, Value] = {"d": list(SIZES), "train_seconds": seconds(found)}
    for method in METHODS:
        names, key = [f"{method} d={d}" for d in SIZES], method.replace("-", "_")
        values |= prefixed(key, columns(found, names))
        pairs = [versus(found, [name], f"exact d={d}") for name, d in zip(names, SIZES, strict=True)]
        values |= prefixed(key, {name: [pair[name][0] for pair in pairs] for name in pairs[0]})
        for name in ("success", "mean") if method in TABLE_4 else ():
            values[f"{key}_{name}_published"] = TABLE_4[method][name]
    return {**values, "failures": failures(found)}


def batchnorm_settings() -> Settings:
    """Table 5: batch normalization, and SVD-Taylor for d = 4, 16 and 64, with five seeds."""
    layers: dict[str, dict[str, Any]] = {BATCHNORM: {"layer": "batchnorm", "method": "exact"}}
    layers |= {f"d = {d}": {"group_size": d} for d in WHITENED}
    return {name: seeded(small("tpami-cifar100", **FIRST_EPOCHS, **layer), 5) for name, layer in layers.items()}


@trains("tpami/training-table-5")
def beside_batchnorm(train: Training) -> Mapping[str, Value]:
    """Errors of both layers beside those printed, and differences from batch normalization paired by seed."""
    settings = batchnorm_settings()
    found = train.run(settings)
    whitened, printed_rows = [name for name in settings if name != BATCHNORM], TABLE_5["resnet18"]
    means = [printed_rows["svd-taylor"]["mean"][TABLE_5["d"].index(d)] for d in WHITENED]
    base = printed_rows["batchnorm"]["mean"]
    training = [apart(found[name], found[BATCHNORM], TRAIN) for name in whitened]
    return {
        "settings": list(settings),
        **columns(found, settings),
        "mean_published": [base, *means],
        **versus(found, whitened, BATCHNORM),
        "difference_published": [round(mean - base, 3) for mean in means],
        "train_difference": [mean[-1] for mean, _ in training],
        "train_error": [error[-1] for _, error in training],
        "failures": failures(found),
        "train_seconds": seconds(found),
    }


def longer_settings() -> Settings:
    """Plain SVD of all eigenvectors at d = 4, 8, 16 for six epochs: two forms, two precisions, three seeds or one."""
    return {
        f"{form} {precision} d={d}": seeded(
            small(
                "tpami-cifar10", method=VARIANTS[form], group_size=d, form="sound", record="gaps",
                spectral_precision=precision, monitor_every=5,
                **{**LONGER_SIZE, "epochs": LONGER_EPOCHS, "milestones": LONGER_MILESTONES},
            ),
            SEEDS if (form, precision) == REPEATED else 1,
        )
        for d, form, precision in product(LONGER_SIZES, VARIANTS, PRECISIONS)
    }  # fmt: skip


@trains("tpami/training-longer")
def longer(train: Training) -> Mapping[str, Value]:
    """Success, ties and smallest relative gaps of plain SVD, in each of the four variants."""
    found = train.run(longer_settings())
    values: dict[str, Value] = {"d": list(LONGER_SIZES), "train_seconds": seconds(found)}
    for form, precision in product(VARIANTS, PRECISIONS):
        chosen = [found[f"{form} {precision} d={d}"] for d in LONGER_SIZES]
        values |= prefixed(
            f"{form}_{precision}",
            {
                "success": [s.success for s in chosen],
                "mean": [s.mean for s in chosen],
                "ties": [max(over_training(s, "ties"), default=math.nan) for s in chosen],
                "smallest_gap": [min(over_training(s, "smallest_gap"), default=math.nan) for s in chosen],
            },
        )
        values[f"{form}_{precision}_success_published"] = TABLE_4["svd"]["success"][: len(LONGER_SIZES)]
    everything = [gap for s in found.values() for gap in over_training(s, "smallest_gap")]
    ties = [count for s in found.values() for count in over_training(s, "ties")]
    return {
        **values,
        "completed": sum(len(s.done) for s in found.values()),
        "runs": sum(len(s.results) for s in found.values()),
        "ties": max(ties, default=math.nan),
        "smallest_gap": min(everything, default=math.nan),
        "failures": failures(found),
    }


def over_training(summary: Summary, name: str) -> list[float]:
    """What was recorded in every epoch of every run."""
    return [e.measured[name] for result in summary.results for e in result.epochs if name in e.measured]


@draws("tpami/training-table-3")
def draw_taylor(values: Mapping[str, Any]) -> Any:
    """Mean errors with their deviations."""
    panel = Panel("SVD-Taylor, d = 64, small network", values["settings"], values["mean"], values["sd"])
    return rows_with_bars([panel], "final error in per cent, mean and deviation")


@draws("tpami/training-table-5")
def draw_beside_batchnorm(values: Mapping[str, Any]) -> Any:
    """Differences from batch normalization."""
    panel = Panel("SVD-Taylor", values["settings"][1:], values["difference"], values["standard_error"])
    return rows_with_bars([panel], "final error minus that of batch normalization, paired by seed", zero=True)


@draws("tpami/training-table-4")
def draw_table(values: Mapping[str, Any]) -> Any:
    """Success and mean error of the methods against d; a small shift keeps them apart."""
    figure, (left, right) = canvas(1, 2, width=4.6)
    for number, (method, color) in enumerate(zip(METHODS, COLORS.values(), strict=False)):
        key, places = method.replace("-", "_"), [i + 0.08 * (number - 2.5) for i in range(len(SIZES))]
        left.plot(places, values[f"{key}_success"], "o-", color=color, markersize=4, label=method)
        right.errorbar(places, values[f"{key}_mean"], values[f"{key}_sd"], fmt="o", color=color, capsize=2)
    for axes, label in ((left, "runs that complete, per cent"), (right, "final error in per cent")):
        axes.set_xticks(range(len(SIZES)), [str(d) for d in SIZES])
        dress(axes, xlabel="matrix dimension d", ylabel=label)
    left.set_ylim(-5, 105)
    return figure
