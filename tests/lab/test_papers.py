"""Every item of the papers comes out as its file says; and the machinery around them."""

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import spectralgrad as sg
from spectralgrad.testing import relative_error, with_spectrum
from spectralgrad_lab.papers import conditions, inputs, registry
from spectralgrad_lab.papers.gradients import compared
from spectralgrad_lab.papers.iccv import newton_schulz
from spectralgrad_lab.papers.items import ItemError, all_items, papers, select
from spectralgrad_lab.papers.judging import run
from spectralgrad_lab.papers.tpami import eigenvalue_gaps
from spectralgrad_lab.papers.verdicts import AMBIGUOUS, DISAGREES, NOT_COMPARABLE

QUICK = 2  # seconds up to which figures are computed again, too; the others are judged by their stored values
COMPUTED = [i for i in all_items() if i.kind == "analytic" or (i.kind == "figure" and i.seconds <= QUICK)]


@pytest.mark.parametrize("item", COMPUTED, ids=lambda item: item.key)
def test_an_item_comes_out_as_recorded(item):
    outcome = run(item)
    wrong = [(j.quantity.name, j.value, j.quantity.expect) for j in outcome.judged if not j.as_expected]
    assert not wrong
    assert outcome.verdict == item.verdict
    assert "{" not in outcome.reason


@pytest.mark.parametrize("item", COMPUTED, ids=lambda item: item.key)
def test_a_verdict_rests_on_a_claimed_quantity(item):
    assert item.quantities
    if item.verdict not in (AMBIGUOUS, NOT_COMPARABLE):
        assert any(quantity.claim is not None for quantity in item.quantities)


def test_items_and_functions_belong_together():
    assert {item.key for item in all_items()} == registry.declared()


def test_where_a_paper_is_wrong_the_item_says_what_its_method_achieves_or_that_it_is_a_slip():
    for item in all_items():
        assert len(item.reason) < 400, item.key
        if item.verdict == DISAGREES:
            assert item.achieves, item.key


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
            ("= ZeroDivisionError", "ZeroDivisionError", "ValueError"),
            (["1", "2"], [1, 2], [1, 3]),
        ],
    )
    def test_what_satisfies_them(self, condition, inside, outside):
        assert conditions.holds(condition, inside)
        assert not conditions.holds(condition, outside)

    def test_nan_satisfies_no_bound(self):
        for condition in ("< 1", "> 1", "0 .. 1", "1 ± 1", "1.0"):
            assert not conditions.holds(condition, float("nan"))

    @pytest.mark.parametrize("condition", ["< 1", "yes", "= text"])
    def test_an_empty_list_satisfies_none(self, condition):
        """A computation that found nothing confirms nothing."""
        assert not conditions.holds(condition, [])
        assert not conditions.holds([condition], [[]])

    def test_one_unit_of_the_last_digit_is_allowed_on_request(self):
        """Of printed numbers, not of counts."""
        for value, strict, rounded in ((5.714, True, True), (5.718, False, True), (5.721, False, False)):
            assert conditions.holds("5.71", value) is strict
            assert conditions.holds("5.71", value, rounding=True) is rounded
        assert not conditions.holds("14", 13, rounding=True)

    @pytest.mark.parametrize(("condition", "value"), [("yes", 1.0), ("5.71", True), ("< 1", "word"), (["1"], [1, 2])])
    def test_a_condition_of_another_kind_is_an_error(self, condition, value):
        with pytest.raises(ValueError, match="expected"):
            conditions.holds(condition, value)

    def test_what_is_no_condition(self):
        with pytest.raises(ValueError, match="expected a condition such as"):
            conditions.parse("about 5")


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
