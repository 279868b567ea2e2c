"""The papers' tables: every cell is read, a run finds the one it stands beside, and what cannot be right is marked."""

import math
from collections import Counter

import pytest

from spectralgrad_lab import PRESETS, Config
from spectralgrad_lab.networks import FORMS
from spectralgrad_lab.published.labeled_numbers import NAMES
from spectralgrad_lab.published.printed import PAPERS, printed
from spectralgrad_lab.published.tables import Cell, Table, candidates, cells
from spectralgrad_lab.report.published_cells import published

# Cells of each table that a run can stand beside.
COUNTS = {
    "TPAMI 2021, Table 3": 3,
    "TPAMI 2021, Table 4": 25,
    "TPAMI 2021, Table 5": 22,
    "TPAMI 2021, Table 6": 22,
    "TPAMI 2021, Table 7": 9,
    "NeurIPS 2019, Table 4": 18,
    "NeurIPS 2019, Table 5": 4,
    "ICCV 2021, Table 2": 14,
    "ICCV 2021, Table 3": 22,
    "ICCV 2021, Table 4": 21,
    "ICCV 2021, Table 11": 5,
    "ECCV 2022, Table 1": 5,
    "ECCV 2022, Table 2": 6,
    "ECCV 2022, Table 3": 6,
    "ECCV 2022, Table 4": 13,
    "ECCV 2022, Table 5": 9,
}
TPAMI, TINY = PRESETS["tpami-cifar10"], PRESETS["tpami-tiny-imagenet"]
ICCV, ECCV = PRESETS["iccv-alexnet"], PRESETS["eccv-cifar100"]


def test_every_training_table_is_read_with_all_its_cells():
    found = Counter(" ".join(cell.table.source.replace(",", " , ").split()[:5]) for cell in cells())
    assert {name.replace(" ,", ","): count for name, count in found.items()} == COUNTS


def test_cells_have_a_place_a_number_and_a_caption():
    for cell in cells():
        assert {"dataset", "network", "layer"} <= set(cell.where), cell
        assert cell.unknown < len(set(NAMES.values())), cell
        assert cell.table.caption
        assert " on " in cell.setting


def test_no_number_of_the_tables_is_stored_twice():
    for paper in PAPERS:
        for name, training in printed(paper)["training"].items():
            numbers = set(training) - {"source", "shared", "epochs", "runs", "accuracy", "labels", "notes", "row"}
            assert not numbers, (paper, name)


def test_cells_of_the_paper_that_cannot_be_right_are_marked_and_no_others():
    complete = [cell for cell in cells() if not math.isnan(cell.mean + cell.sd + cell.best)]
    assert len(complete) > 80
    assert [cell for cell in complete if _impossible(cell) != bool(cell.note)] == []


def _impossible(cell):
    """A mean is not below the least value, and a deviation not above (mean − least)·√n."""
    success = 100.0 if math.isnan(cell.success) else cell.success
    trials = max(1, round((cell.table.runs or 5) * success / 100))
    return cell.mean < cell.best or cell.sd > (cell.mean - cell.best + 0.01) * math.sqrt(trials)


@pytest.mark.parametrize("network", ["resnet18-cifar", "resnet50-cifar"])
def test_table_5_has_a_least_error_below_each_mean(network):
    found = [c for c in cells() if c.table.source.startswith("TPAMI 2021, Table 5") and c.where["network"] == network]
    assert len(found) == 11
    assert all(cell.best < cell.mean and cell.sd < 2 * (cell.mean - cell.best) for cell in found)


CIFAR100 = PRESETS["tpami-cifar100"]


@pytest.mark.parametrize(
    ("method", "size", "network", "eps", "success", "mean"),
    [
        ("svd-taylor", 64, "resnet18-cifar", None, 100.0, 21.14),
        ("svd-taylor:degree=19", 64, "resnet18-cifar", 1e-2, 87.5, 21.45),
        ("svd-taylor:degree=19", 64, "resnet18-cifar", 1e-4, 50.0, 21.31),
        ("svd-taylor:degree=9", 32, "resnet18-cifar", 1e-2, math.nan, 20.99),
        ("svd-taylor", 64, "resnet50-cifar", None, math.nan, 19.81),
        ("svd-pi", 4, "resnet50-cifar", 1e-4, math.nan, 20.98),
        ("svd-pi", 8, "resnet18-cifar", 1e-4, math.nan, 21.56),
        ("batchnorm", None, "resnet50-cifar", None, math.nan, 21.62),
    ],
)
def test_cifar100_stands_beside_its_own_tables(method, size, network, eps, success, mean):
    layer = {"layer": "batchnorm"} if method == "batchnorm" else {"method": method}
    cell = published(CIFAR100.replaced(group_size=size, network=network, eps=eps, **layer))
    assert (cell.success, cell.mean) == pytest.approx((success, mean), nan_ok=True)


@pytest.mark.parametrize(
    ("method", "size", "dataset", "eps"),
    [
        ("svd-taylor:degree=19", 32, "cifar100", 1e-2),
        ("svd-taylor:degree=5", 64, "cifar100", 1e-2),
        ("svd-taylor", 64, "cifar100", 1e-3),
        ("svd-taylor:degree=19", 64, "cifar10", 1e-2),
        ("svd-taylor:degree=9:faithful=false", 64, "cifar10", 1e-2),
        ("svd-clip:threshold=10", 8, "cifar10", None),
        ("svd-clip", 8, "cifar100", None),
        ("svd-pi", 8, "cifar10", 1e-2),
        ("svd-pi:iterations=9", 8, "cifar10", 1e-4),
        ("pi:seed=3", 8, "cifar10", 1e-4),
    ],
)
def test_what_the_paper_did_not_run_has_no_cell(method, size, dataset, eps):
    assert published(TPAMI.replaced(method=method, group_size=size, dataset=dataset, eps=eps)) is None


@pytest.mark.parametrize(
    ("config", "source", "said"),
    [
        (TINY, "TPAMI 2021, Table 6", "36.72 ± 0.41 (36.16)"),
        (TINY.replaced(network="resnet50-cifar", group_size=8), "TPAMI 2021, Table 6", "35.40"),
        (TPAMI.replaced(method="pi", eps=1e-4, group_size=8), "TPAMI 2021, Table 4", "(6.28)"),
        (TPAMI.replaced(method="svd", group_size=64), "TPAMI 2021, Table 4", "–"),
        (PRESETS["neurips-cifar10"], "TPAMI 2021, Table 4", "4.59 ± 0.09 (4.44)"),
        (PRESETS["neurips-cifar10-pca"], "NeurIPS 2019, Table 5", "4.63 ± 0.11 (4.58)"),
        (PRESETS["neurips-cifar10-pca"].replaced(keep=0.995), "NeurIPS 2019, Table 4", "4.72 ± 0.10"),
        (PRESETS["neurips-cifar10-pca"].replaced(keep=16), "NeurIPS 2019, Table 4", "4.63 ± 0.17"),
        (PRESETS["neurips-cifar10-pca"].replaced(keep=0.999, method="svd-pi:iterations=2"), "NeurIPS 2019, Table 4",
         "4.63 ± 0.09"),
        (TPAMI.replaced(layer="batchnorm"), "NeurIPS 2019, Table 5", "4.81 ± 0.19 (4.66)"),
        (ICCV, "ICCV 2021, Table 11", "47.95 / 23.64 (47.81 / 23.54)"),
        (ICCV.replaced(method="svd"), "ICCV 2021, Table 2", "48.77 / 24.28"),
        (ICCV.replaced(method="svd-taylor"), "ICCV 2021, Table 2", "48.70 / 24.30"),
        (ICCV.replaced(method="svd-taylor:degree=9", eps=1e-2, batch_size=100), "TPAMI 2021, Table 7", "38.74 / 17.12"),
        (ICCV.replaced(method="svd", batch_size=100), "TPAMI 2021, Table 7", "38.51 / 17.60"),
        (ICCV.replaced(pooling="average", batch_size=100), "TPAMI 2021, Table 7", "41.80 / 19.20"),
        (ICCV.replaced(hybrid="svd-pade"), "ICCV 2021, Table 2", "47.76 / 23.48 (47.63 / 23.21)"),
        (ICCV.replaced(hybrid="svd-pade", warmup_epochs=3), "ICCV 2021, Table 11", "47.95 / 23.57 (47.54 / 23.14)"),
        (PRESETS["iccv-resnet101"].replaced(hybrid="svd"), "ICCV 2021, Table 3", "21.58 / 5.80"),
        (PRESETS["iccv-resnet50"].replaced(pooling="average"), "ICCV 2021, Table 3", "23.85 / 7.13"),
        (PRESETS["iccv-birds"], "ICCV 2021, Table 4", "accuracy 87.05 (87.29)"),
        (ECCV, "ECCV 2022, Table 2", "19.99 ± 0.16 (19.80)"),
        (ECCV.replaced(weights="ol"), "ECCV 2022, Table 4", "19.73 ± 0.28 (19.54)"),
        (ECCV.replaced(nog=True, weights="ow", olr=True), "ECCV 2022, Table 3", "19.05 ± 0.31 (18.77)"),
        (ECCV.replaced(method="newton-schulz"), "ECCV 2022, Table 1", "19.45 ± 0.33 (19.01)"),
        (PRESETS["eccv-cifar10"].replaced(nog=True, weights="ow"), "ECCV 2022, Table 4", "4.09 ± 0.07 (4.01)"),
        (PRESETS["eccv-resnet18"].replaced(olr=True), "ECCV 2022, Table 5", "accuracy 73.39 / 91.26, 0 failures"),
    ],
)  # fmt: skip
def test_a_run_stands_beside_its_own_table(config, source, said):
    cell = published(config)
    assert cell.table.source.startswith(source)
    assert str(cell) == said


def test_the_papers_cells_are_for_the_published_form_where_there_are_two():
    found = {
        form: {m for m in ("svd", "svd-clip", "svd-pi", "pi", "svd-taylor")
               if published(TPAMI.replaced(method=m, form=form, eps=1e-4 if m in ("pi", "svd-pi") else 1e-2))}
        for form in FORMS
    }  # fmt: skip
    assert found == {
        "published": {"svd", "svd-clip", "svd-pi", "pi", "svd-taylor"},
        "sound": {"svd-pi"},  # it has one form
    }
    assert published(ICCV.replaced(form="sound")) == published(ICCV)
    assert published(ICCV.replaced(form="sound", method="svd-pade")) is None


def test_pooling_runs_that_the_papers_did_not_make_have_no_cell():
    others = [
        {"spectral_precision": "float32"},
        {"method": "svd", "power": 0.25},
        {"normalize": True},
        {"layer": "whitening"},
        {"hybrid": "svd-pade", "warmup_epochs": 5},
        {"method": "svd", "hybrid": "svd-pade"},
        {"nog": True},
    ]
    assert [published(ICCV.replaced(**other)) for other in others] == [None] * 7


def test_failures_and_accuracies_are_named():
    table = Table("here", "a table", accuracy=True)
    assert str(Cell(table, {}, mean=70.0, failures=1)) == "accuracy 70.00, 1 failure"
    assert str(Cell(table, {})) == "–"


def test_a_configuration_of_another_kind_has_no_candidates():
    assert candidates({"dataset": "fashion"}) == []
    assert published(Config()) is None
