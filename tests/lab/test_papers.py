"""Every item of the papers comes out as its file says; and the machinery around them."""

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum
from spectralgrad_lab.papers import inputs, registry, value_conditions
from spectralgrad_lab.papers.gradients import compared
from spectralgrad_lab.papers.iccv import newton_schulz
from spectralgrad_lab.papers.items import Item, ItemError, _item, all_items, check_duplicates, papers, select
from spectralgrad_lab.papers.outcomes import read_all
from spectralgrad_lab.papers.run_item import judge, run
from spectralgrad_lab.papers.tpami import eigenvalue_gaps
from spectralgrad_lab.papers.trends import least_favourable, most, trend, trends
from spectralgrad_lab.papers.verdicts import (
    AGREES,
    AMBIGUOUS,
    DISAGREES,
    NOT_SEEN,
    OPPOSITE,
    REPRODUCED,
    TOO_SMALL,
    WEIGHTS,
)
from spectralgrad_lab.training.config.presets import PRESETS

from ..documents import ROOT

QUICK = 2  # seconds up to which figures are computed again, too; the others are judged by their stored values
COMPUTED = [i for i in all_items() if i.kind == "analytic" or (i.kind == "figure" and i.seconds <= QUICK)]


@pytest.mark.parametrize("item", COMPUTED, ids=lambda item: item.key)
def test_an_item_comes_out_as_recorded(item):
    outcome = run(item)
    wrong = [(j.quantity.name, j.value, j.quantity.expect) for j in outcome.judged if not j.as_expected]
    assert not wrong
    assert outcome.verdict == item.verdict
    assert "{" not in outcome.reason


def test_a_verdict_rests_on_a_claimed_quantity():
    claimed = lambda item: any(quantity.test is not None for quantity in item.quantities)  # noqa: E731
    assert [item.key for item in COMPUTED if not item.quantities] == []
    assert [item.key for item in COMPUTED if item.verdict != AMBIGUOUS and not claimed(item)] == []


def test_items_and_functions_belong_together():
    assert {item.key for item in all_items()} == registry.declared()


def test_where_a_paper_is_wrong_the_item_says_what_its_method_achieves_or_that_it_is_a_slip():
    for item in all_items():
        assert len(item.reason) < 400, item.key
        if item.verdict == DISAGREES:
            assert item.achieves, item.key


def test_training_items_name_a_preset_and_their_results_say_where_the_runs_depart_from_it():
    items = {item.key: item for item in all_items() if item.preset}
    assert len(items) > 8
    assert all(item.kind == "training" and item.preset in PRESETS for item in items.values())
    stored = {key: outcome for key, outcome in read_all(ROOT / "docs/results/papers").items() if key in items}
    assert all("epochs" in " ".join(outcome.values["departures"]) for outcome in stored.values())


def test_ids_are_unique_and_readable():
    counts = Counter(item.id for item in all_items() if item.kind == "analytic")
    assert set(counts.values()) <= {1}
    assert all(re.fullmatch(r"[A-Za-z0-9-]+", item.id) for item in all_items())


class TestSelecting:
    def test_by_paper_number_and_table(self):
        assert [i.key for i in select(["B7"])] == [i.key for i in select(["neurips/b7"])] == ["neurips/B7"]
        assert "neurips/B7" in [i.key for i in select(["neurips/table-1"])]
        assert {i.paper for i in select(["neurips"])} == {"neurips"}
        assert {i.kind for i in select(["all-analytic"])} == {"analytic"}

    def test_an_unknown_name(self):
        with pytest.raises(ItemError, match="no item is called 'neurips/table-99'; `spectralgrad reproduce list`"):
            select(["neurips/table-99"])


class TestConditions:
    @pytest.mark.parametrize(
        ("condition", "inside", "outside"),
        [
            ("< 1e-12", 0.0, 1e-12),
            (">= 2", 2, 1.99),
            ("0.1 .. 0.2", 0.2, 0.21),
            ("5.7051 ± 1e-3", 5.706, 5.7063),
            ("4.5e17 ± 1 %", 4.54e17, 4.56e17),
            ("-44.99", -44.9941, -44.996),
            ("27", 27, 28),
            ("nan", float("nan"), 1.0),
            ("inf", float("inf"), 1e300),
            ("yes", True, False),
            ("<= 0.05 ~ 0.01", 0.05, 0.0569),
            ("= ZeroDivisionError", "ZeroDivisionError", "ValueError"),
            (["1", "2"], [1, 2], [1, 3]),
        ],
    )
    def test_what_satisfies_them(self, condition, inside, outside):
        assert value_conditions.holds(condition, inside)
        assert not value_conditions.holds(condition, outside)

    def test_nan_satisfies_no_bound(self):
        for condition in ("< 1", "> 1", "0 .. 1", "1 ± 1", "1.0"):
            assert not value_conditions.holds(condition, float("nan"))

    @pytest.mark.parametrize("condition", ["< 1", "yes", "= text"])
    def test_an_empty_list_satisfies_none(self, condition):
        """A computation that found nothing confirms nothing."""
        assert not value_conditions.holds(condition, [])
        assert not value_conditions.holds([condition], [[]])

    def test_one_unit_of_the_last_digit_is_allowed_on_request(self):
        """Of printed numbers, not of counts."""
        for value, strict, rounded in ((5.714, True, True), (5.718, False, True), (5.721, False, False)):
            assert value_conditions.holds("5.71", value) is strict
            assert value_conditions.holds("5.71", value, rounding=True) is rounded
        assert not value_conditions.holds("14", 13, rounding=True)

    def test_a_condition_may_say_what_rounding_is(self):
        assert value_conditions.holds("<= 0.05 ~ 0.01", 0.0569, rounding=True)
        assert not value_conditions.holds("<= 0.05 ~ 0.01", 0.0601, rounding=True)
        assert value_conditions.holds("10 ~ 5", 11.5, rounding=True)
        assert value_conditions.holds("< 1 ~ 1", 1.5, rounding=True)

    def test_any_says_nothing(self):
        assert value_conditions.holds(["any", "< 1"], [float("nan"), 0.5])

    @pytest.mark.parametrize(("condition", "value"), [("yes", 1.0), ("5.71", True), ("< 1", "word"), (["1"], [1, 2])])
    def test_a_condition_of_another_kind_is_an_error(self, condition, value):
        with pytest.raises(ValueError, match="expected"):
            value_conditions.holds(condition, value)

    def test_what_is_no_condition(self):
        with pytest.raises(ValueError, match="expected a condition such as"):
            value_conditions.parse("about 5")


def test_newton_schulz_is_stopped_after_the_iterations_that_the_item_names():
    """On commuting matrices the iteration is one of numbers."""
    w = np.logspace(-2, 0, 6)
    for steps, error in zip((1, 3, 5, 10, 20), newton_schulz.convergence()["errors"], strict=True):
        y, z = w / w.sum(), np.ones(6)
        for _ in range(steps):
            t = (3 - z * y) / 2
            y, z = y * t, t * z
        distance = np.linalg.norm(y * w.sum() ** 0.5 - w**0.5) / np.linalg.norm(w**0.5)
        assert error == pytest.approx(distance, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("degree", [9, 100])
def test_the_columns_of_the_accuracy_table_have_the_degree_of_their_names(degree):
    A, G = with_spectrum([1.0, 1.01, 2.0, 2.02]), inputs.sym(inputs.gaussian(4, 4))
    column, rule = compared.TABLE[f"taylor_{degree}"], compared.root_by(sg.Taylor(degree=degree))
    assert relative_error(inputs.gradient(column, A, G), inputs.gradient(rule, A, G)) < 1e-13


def test_the_thresholds_of_figure_1_are_halved_four_times():
    assert eigenvalue_gaps.THRESHOLDS[0] == 2**-10
    assert [a / b for a, b in pairwise(eigenvalue_gaps.THRESHOLDS)] == [2] * 4


def test_papers_are_described():
    for paper in papers():
        assert paper.title
        assert len(paper.about) > 100, paper.name


ENTRY = {
    "id": "X1",
    "place": "Eq. 1",
    "claim": "1 = 2",
    "verdict": DISAGREES,
    "reason": "It is not.",
    "weight": "misprint",
}


class TestTheItemsFiles:
    def test_an_item_that_does_not_agree_needs_the_papers_words(self):
        with pytest.raises(ItemError, match="tpami/X1: expected a quote, the paper's own words"):
            _item("tpami", ENTRY, own=False)
        assert _item("tpami", {**ENTRY, "quote": "1 = 2"}, own=False).quote == "1 = 2"
        assert _item("tpami", {**ENTRY, "verdict": AGREES}, own=False).quote == ""

    def test_the_weight_is_one_that_is_known(self):
        with pytest.raises(ItemError, match=r"expected a weight of .*'misprint'.*, got 'huge'"):
            _item("tpami", {**ENTRY, "quote": "1 = 2", "weight": "huge"}, own=False)
        with pytest.raises(ItemError, match=r"tpami/X1: missing \['weight'\]"):
            _item("tpami", {key: value for key, value in ENTRY.items() if key != "weight"}, own=False)

    @pytest.mark.parametrize("other", ["tpami/X9", "tpami/X2", "tpami/X1"])
    def test_same_as_names_an_item_that_is_counted(self, other):
        """Not one that is missing, a duplicate itself, or the item."""
        items = [
            Item("tpami", f"X{k}", "", "", "analytic", AGREES, "", same_as=s)
            for k, s in ((1, other), (2, "tpami/X3"), (3, ""))
        ]
        with pytest.raises(
            ItemError, match=f"tpami/X1: same_as expected the key of an item that is counted, got '{other}'"
        ):
            check_duplicates(items)
        check_duplicates(items[1:])

    def test_every_item_of_a_paper_says_how_much_it_matters(self):
        for paper in papers():
            for item in paper.items:
                assert paper.own or item.weight in WEIGHTS, item.key
                assert "  " not in item.quote.strip() or item.id == "R31", item.key

    def test_duplicates_named_in_the_audit_are_merged(self):
        twins = {item.key: item.same_as for item in all_items() if item.same_as}
        assert twins["tpami/R36"] == "neurips/B13"
        assert twins["iccv/P9"] == "neurips/B4"
        assert twins["iccv/S1"] == "iccv/P32"
        assert twins["eccv/O23"] == "eccv/O15"
        assert {twins[f"iccv/P{k}"] for k in (15, 18, 20, 22)} == {"iccv/P14"}


class TestTrends:
    @pytest.mark.parametrize(
        ("test", "value", "error", "published", "verdict"),
        [
            ("> 0", 10.2, 1.9, None, REPRODUCED),
            ("< 0", 1.58, 0.32, None, OPPOSITE),
            ("< 0", -1.58, 0.32, None, REPRODUCED),
            ("> 0", 0.1, 0.3, "0.9", NOT_SEEN),
            ("> 0", 0.1, 0.3, "0.5", TOO_SMALL),
            ("> 0", 0.1, 0.3, "fails to converge", TOO_SMALL),
            ("> 0", 20.0, float("nan"), "37", TOO_SMALL),
            ("> 0", float("nan"), 0.1, "37", TOO_SMALL),
            ("< 50", 0.0, None, "0", REPRODUCED),
            ("< 50", 100.0, None, "0", NOT_SEEN),
            ("any", 100.0, 0.1, "0", ""),
        ],
    )
    def test_one_comparison(self, test, value, error, published, verdict):
        assert trends(test, value, error, published) == (verdict,)

    def test_two_standard_errors_decide(self):
        assert trend("> 0", 1.99, 1.0) == TOO_SMALL
        assert trend("> 0", 2.01, 1.0) == REPRODUCED
        assert trend("> 1", -1.01, 1.0) == OPPOSITE

    def test_a_list_has_the_verdict_of_most(self):
        assert most([OPPOSITE, TOO_SMALL, REPRODUCED, REPRODUCED, ""]) == REPRODUCED
        assert most([OPPOSITE, REPRODUCED]) == OPPOSITE
        assert most([TOO_SMALL, TOO_SMALL]) == TOO_SMALL
        assert most(["", ""]) == ""

    def test_an_item_has_the_least_favourable_one_that_tells_something(self):
        assert least_favourable([REPRODUCED, TOO_SMALL]) == REPRODUCED
        assert least_favourable([REPRODUCED, NOT_SEEN]) == NOT_SEEN
        assert least_favourable([NOT_SEEN, OPPOSITE]) == OPPOSITE
        assert least_favourable([]) == TOO_SMALL

    @pytest.mark.parametrize(("difference", "verdict"), [(10.2, REPRODUCED), (1.0, TOO_SMALL), (-10.2, OPPOSITE)])
    def test_the_verdict_of_an_experiment_follows_from_its_values(self, difference, verdict):
        (item,) = select(["iccv/figure-2-left"])
        values = {
            "success": [100.0] * 4,
            "difference": [0.0, difference],
            "standard_error": [0.3, 1.9],
            "failures": "none",
        }
        assert judge(item, values, 0.0).verdict == verdict

    def test_a_missing_standard_error(self):
        (item,) = select(["iccv/figure-2-left"])
        values = {"success": [100.0] * 4, "difference": [0.0, 1.0], "failures": "none"}
        with pytest.raises(ItemError, match="iccv/figure-2-left: its function does not return 'standard_error'"):
            judge(item, values, 0.0)
