"""Arithmetic of the printed tables: gains, differences, overheads (Tables 1–6)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ...published.printed import printed
from ..registry import computes
from ..value_conditions import Value

RUNS = 10
"""The runs behind each mean."""
_TABLES = ("table-1", "table-2", "table-3", "table-4")


def rows(number: str) -> dict[str, dict[str, Any]]:
    """The rows of a printed table, by treatment."""
    return {row["treatment"]: row for row in printed("eccv")[number]["row"]}


def error_cells() -> Iterator[tuple[str, str, dict[str, float]]]:
    """Treatment, dataset and printed numbers of every cell of Tables 1–4."""
    for number in _TABLES:
        for treatment, row in rows(number).items():
            for dataset in ("cifar10", "cifar100"):
                if dataset in row:
                    yield treatment, dataset, row[dataset]


def is_complete(cell: Mapping[str, float]) -> bool:
    """Whether a cell prints mean, deviation and minimum."""
    return {"mean", "sd", "min"} <= set(cell)


def is_feasible(cell: Mapping[str, float]) -> bool:
    """Whether ten numbers can have this mean, deviation and minimum, up to rounding.

    With the minimum d below the mean, the other runs are at least as large: s lies between d √n/(n − 1) and d √n.
    """
    if not is_complete(cell):
        return True
    d, rounding = cell["mean"] - cell["min"], 0.01
    low, high = (d - rounding) * math.sqrt(RUNS) / (RUNS - 1), (d + rounding) * math.sqrt(RUNS)
    return d >= 0 and low <= cell["sd"] + rounding and cell["sd"] - rounding <= high


@computes("eccv/O25")
def quoted_gains() -> Mapping[str, Value]:
    """The gains that the text quotes, from the printed means; impossible cells; cells that differ between tables."""
    mean = {(treatment, on): cell["mean"] for treatment, on, cell in error_cells() if "mean" in cell}
    quoted = [
        ("SVD", "OLR", "cifar100"),
        ("OLR", "NOG+OW+OLR", "cifar100"),
        ("NOG+OW", "NOG+OW+OLR", "cifar100"),
        ("SVD", "NOG+OW+OLR", "cifar10"),
        ("SVD", "NOG+OW+OLR", "cifar100"),
    ]
    seen: dict[tuple[str, str, str], set[float]] = {}
    for treatment, dataset, cell in error_cells():
        for name, value in cell.items():
            seen.setdefault((treatment, dataset, name), set()).add(value)
    return {
        "gains": [round(mean[worse, on] - mean[better, on], 9) for worse, better, on in quoted],
        "cells": sum(is_complete(cell) for *_, cell in error_cells()),
        "impossible": sum(not is_feasible(cell) for *_, cell in error_cells()),
        "contradictions": sum(len(values) > 1 for values in seen.values()),
    }


@computes("eccv/O26")
def differences_of_table_5() -> Mapping[str, Value]:
    """Accuracies minus plain SVD's, in the order of the rows."""
    table = rows("table-5")
    plain, others = table["SVD"], [row for name, row in table.items() if name != "SVD"]
    return {name: [round(row[name] - plain[name], 9) for row in others] for name in ("top1", "top5")}


@computes("eccv/O27")
def overhead_in_table_6() -> Mapping[str, Value]:
    """Added time in per cent: of the backward pass, of both passes, and beside a network without whitening."""
    table = rows("table-6")
    plain, everything, vanilla = table["SVD"], table["OW+NOG+OLR"], table["vanilla"]

    def total(row: Mapping[str, float]) -> float:
        return row["forward"] + row["backward"]

    return {
        "nog": 100 * (table["NOG"]["backward"] / plain["backward"] - 1),
        "olr": 100 * (table["OLR"]["backward"] / plain["backward"] - 1),
        "all_forward": 100 * (everything["forward"] / plain["forward"] - 1),
        "all_backward": 100 * (everything["backward"] / plain["backward"] - 1),
        "all": 100 * (total(everything) / total(plain) - 1),
        "over_vanilla": 100 * (total(everything) / total(vanilla) - 1),
    }
