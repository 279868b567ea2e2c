"""What the printed tables say about each other (Tables 2–5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spectralgrad_lab.published.printed import printed

from ..registry import computes
from ..value_conditions import Value

TABLES = printed("neurips")


def means(cells: list[Any]) -> list[float]:
    """The means of cells that hold mean and standard deviation."""
    return [float(mean) for mean, _ in cells]


@computes("neurips/B13")
def minimum_and_mean() -> Mapping[str, Value]:
    """How many cells of Tables 2, 3 and 5 print a minimum above the mean, and by how much."""
    cells = {f"{name}, d = {d}": (low, mean) for name, d, low, mean in _table_2()}
    for network in ("ResNet18", "ResNet50"):
        row = TABLES["table-3"][network]
        columns = zip(TABLES["table-3"]["columns"], row["min"], row["mean"], strict=True)
        cells |= {f"{network}, {column}": (low, mean) for column, low, mean in columns}
    cells |= {name: (cell["min"], cell["mean"]) for name, cell in TABLES["table-5"].items() if name != "caption"}
    complete = {
        name: (float(low), float(mean[0]))
        for name, (low, mean) in cells.items()
        if isinstance(mean, list) and low != "-"
    }
    above = {name: low - mean for name, (low, mean) in complete.items() if low > mean}
    return {
        "cells": len(complete),
        "above": len(above),
        "which": list(above),
        "excess": max(above.values(), default=0.0),
    }


def _table_2() -> list[tuple[str, int, str, Any]]:
    table = TABLES["table-2"]
    rows = ((name, table[name]) for name in ("SVD", "PI", "Ours"))
    return [(name, d, row["min"][i], row["mean"][i]) for name, row in rows for i, d in enumerate(table["d"])]


@computes("neurips/B14")
def success_rates() -> Mapping[str, Value]:
    """Table 2's success rates from the failures that the text counts."""
    table = TABLES["table-2"]
    rates = {name: [100 * (1 - n / table["trials"]) for n in table[name]["failed"]] for name in ("SVD", "PI", "Ours")}
    return {"svd": rates["SVD"], "pi": rates["PI"], "ours": rates["Ours"]}


@computes("neurips/B17")
def preserved_information() -> Mapping[str, Value]:
    """The best percentage of Table 4(a), and which of its cells the cell K = 19 of Table 4(c) repeats."""
    a, c = TABLES["table-4"]["a"], TABLES["table-4"]["c"]
    best = min(zip(means(a["error"]), a["percentage"], strict=True))[1]
    at_19 = c["error"][c["iterations"].index("19")]
    same = [p for p, error in zip(a["percentage"], a["error"], strict=True) if error == at_19]
    return {"best": float(best), "same_as_k_19": [float(p) for p in same], "stated": float(c["percentage"])}


@computes("neurips/B18")
def group_sizes() -> Mapping[str, Value]:
    """Table 3: the best group size of each network, its gain over batch normalization, and how many sizes have one."""
    values: dict[str, Value] = {}
    for network in ("ResNet18", "ResNet50"):
        columns = TABLES["table-3"]["columns"]
        baseline, *errors = means(TABLES["table-3"][network]["mean"])
        low, size = min(zip(errors, columns[1:], strict=True))
        name = network.lower()
        values |= {f"{name}_best": int(size), f"{name}_gain": baseline - low}
        values[f"{name}_better"] = sum(error < baseline for error in errors)
    return values
