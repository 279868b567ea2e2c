"""What Tables 3–9 can and cannot be: arithmetic with the printed numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from statistics import fmean
from typing import Any

from ...published.printed import printed
from ..registry import computes
from ..value_conditions import Value

ROUNDING = 0.01  # of a difference of two numbers that are printed with two digits


def table(number: int) -> dict[str, Any]:
    """A printed table of the paper."""
    return dict(printed("tpami")[f"table-{number}"])


def cells() -> Iterator[tuple[str, int, float, float, float]]:
    """Method, d, minimum, mean and standard deviation of each cell of Table 4 that has all three."""
    whole = table(4)
    for method, row in whole.items():
        if isinstance(row, dict):
            for d, low, mean, sd in zip(whole["d"], row["min"], row["mean"], row["sd"], strict=True):
                if not isnan(low + mean + sd):
                    yield method, d, low, mean, sd


def below(ours: Sequence[float], theirs: Sequence[float]) -> list[bool]:
    """Entry by entry, whether an error is lower."""
    return [a < b for a, b in zip(ours, theirs, strict=True)]


def differences(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """a − b, rounded to the two digits that are printed."""
    return [round(x - y, 2) for x, y in zip(a, b, strict=True)]


@computes("tpami/R35")
def success_rates_of_8() -> Mapping[str, Value]:
    """The success rates of Table 3 as numbers of successes in 8 runs."""
    found = table(3)
    successes = [rate / 100 * found["runs"] for rate in found["success"]]
    return {"successes": successes, "whole": max(abs(n - round(n)) for n in successes)}


@computes("tpami/R36")
def minimum_and_mean() -> Mapping[str, Value]:
    """mean − minimum of every cell of Table 4; below zero is impossible."""
    found = {f"{method}, d = {d}": round(mean - low, 2) for method, d, low, mean, _ in cells()}
    negative = [name for name, difference in found.items() if difference < 0]
    worst = found["svd, d = 4"]
    return {"svd": worst, "excess": -worst, "impossible": negative, "count": len(negative), "cells": len(found)}


@computes("tpami/R37")
def deviations() -> Mapping[str, Value]:
    """The number of runs that a cell's deviation needs: sd ≤ (mean − min)√n for any n numbers with that minimum."""
    runs = {
        f"{method}, d = {d}": ((sd - ROUNDING / 2) / (mean - low + ROUNDING)) ** 2
        for method, d, low, mean, sd in cells()
        if low <= mean
    }
    too_many = [name for name, needed in runs.items() if needed > table(4)["runs"]]
    others = max(needed for name, needed in runs.items() if name not in too_many)
    return {"needed": runs["svd-clip, d = 8"], "impossible": too_many, "others": others}


@computes("tpami/R38")
def success_rates_of_15() -> Mapping[str, Value]:
    """Which numbers of successes out of 15 and out of 18 round to the rates 46.7 % and 6.7 %."""
    rates = (table(4)["svd"]["success"][0], table(4)["pi"]["success"][1])

    def successes(attempts: int) -> list[int]:
        return [k for rate in rates for k in range(attempts + 1) if round(100 * k / attempts, 1) == rate]

    attempts = printed("tpami")["figure-1b"]["attempts"]
    return {"of_15": successes(table(4)["runs"]), "of_18": len(successes(attempts)), "failed": 15 - successes(15)[0]}


@computes("tpami/R39")
def ranking_on_cifar10() -> Mapping[str, Value]:
    """Table 4: SVD-Taylor against SVD-PI against SVD-Clip, by means and by minima."""
    taylor, power, clip = (table(4)[name] for name in ("svd-taylor", "svd-pi", "svd-clip"))
    lowest = min(taylor["min"])
    return {
        "taylor_means": below(taylor["mean"], power["mean"]),
        "power_means": below(power["mean"], clip["mean"]),
        "best_d": [d for d, low in zip(table(4)["d"], taylor["min"], strict=True) if low == lowest],
        "at_16": taylor["min"][2] == lowest,
        "best_mean_d": table(4)["d"][taylor["mean"].index(min(taylor["mean"]))],
        "minima": differences(clip["min"], power["min"]),
        "clip_ahead": round(power["min"][0] - clip["min"][0], 2),
    }


@computes("tpami/R40")
def ranking_on_tiny_imagenet() -> Mapping[str, Value]:
    """Table 6: SVD-Taylor against SVD-PI by means, by minima, and against batch normalization."""
    small, large = table(6)["resnet18"], table(6)["resnet50"]
    taylor, power = small["svd-taylor"], small["svd-pi"]
    return {
        "means": below(taylor["mean"], power["mean"]),
        "minima": differences(taylor["min"], power["min"]),
        "resnet50": below(large["svd-taylor"]["error"], large["svd-pi"]["error"]),
        "against_batchnorm": differences(taylor["mean"], [small["batchnorm"]["mean"]] * 5),
    }


@computes("tpami/R41")
def means_of_table_8() -> Mapping[str, Value]:
    """The mean accuracies of Table 8, the drops from the original images, and their means."""
    rows = {name: row for name, row in table(8).items() if isinstance(row, dict)}
    means = {name: fmean(row["accuracy"]) for name, row in rows.items()}
    original = rows.pop("original")
    drops = [
        abs(best - found - drop)
        for row in rows.values()
        for best, found, drop in zip(original["accuracy"], row["accuracy"], row["drop"], strict=True)
    ]
    return {
        "original": means["original"],
        "others": [means[name] for name in rows],
        "drops": max(drops),
        "mean_drops": [means["original"] - means[name] for name in rows],
        "off": [means["original"] - means[name] - row["mean_drop"] for name, row in rows.items()],
    }


@computes("tpami/R42")
def styles_of_table_8() -> Mapping[str, Value]:
    """SVD-WCT against PI-WCT style by style, and where Clip-WCT is worst."""
    rows = table(8)
    styles = [i for i, name in enumerate(rows["columns"]) if name != "Real Photo"]
    accuracy = {name: [row["accuracy"][i] for i in styles] for name, row in rows.items() if isinstance(row, dict)}
    others = [accuracy[name] for name in ("gd-wct", "pi-wct", "svd-wct")]
    worst = [c < min(row[i] for row in others) for i, c in enumerate(accuracy["clip-wct"])]
    gaps = differences(accuracy["svd-wct"], accuracy["pi-wct"])
    return {
        "gaps": gaps,
        "monet": gaps[1],
        "van_gogh": gaps[3],
        "clip_worst": worst,
        "clip_worst_mean": rows["clip-wct"]["mean"] < min(rows[n]["mean"] for n in ("gd-wct", "pi-wct", "svd-wct")),
        "always_above_gd": all(a > b for a, b in zip(accuracy["svd-wct"], accuracy["gd-wct"], strict=True)),
    }


@computes("tpami/R43")
def sharpness() -> Mapping[str, Value]:
    """Table 9: SVD-WCT minus GD-WCT, Clip-WCT and PI-WCT, style by style."""
    rows = table(9)["rows"]
    return {name.split("-")[0]: differences(rows["svd-wct"], rows[name]) for name in ("gd-wct", "clip-wct", "pi-wct")}


@computes("tpami/R44")
def pooling_on_imagenet() -> Mapping[str, Value]:
    """Table 7: the rank of SVD-Taylor among the eight methods with a result, and its distance from the best."""
    rows = {name: row for name, row in table(7)["rows"].items() if not isnan(row[0])}
    ours = rows["SVD-Taylor"]
    ranks = [1 + sum(row[i] < ours[i] for row in rows.values()) for i in (0, 1)]
    return {
        "methods": len(rows),
        "top1_rank": ranks[0],
        "top5_rank": ranks[1],
        "top1_behind": round(ours[0] - min(row[0] for row in rows.values()), 2),
        "top5_ahead": round(sorted(row[1] for row in rows.values())[1] - ours[1], 2),
    }
