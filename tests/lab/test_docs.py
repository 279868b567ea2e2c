"""The pages about the lab run, and what the documentation shows of both packages is up to date."""

import re

import pytest

from spectralgrad.rules import METHODS
from spectralgrad_lab.data import DATASETS
from tools import arrows

from ..documents import PAGES, ROOT, is_of_the_lab, run_examples, text


@pytest.mark.parametrize("page", [page for page in PAGES if is_of_the_lab(page)], ids=lambda page: page.stem)
def test_examples_run(page):
    run_examples(page, METHODS, DATASETS)


def test_the_picture_of_the_rooms_is_up_to_date():
    assert arrows.PICTURE.read_text("utf-8") == arrows.draw(), "run: python tools/arrows.py"


def test_the_table_of_rooms_is_complete():
    """CONTRIBUTING.md names each room, and no other."""
    section = text(ROOT / "CONTRIBUTING.md").split("\n## The rooms\n")[1].split("\n## ")[0]
    tables = re.findall(r"((?:^\|.*\n)+)", section, re.MULTILINE)
    for package, table in zip(reversed(arrows.PACKAGES), tables, strict=True):
        assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == set(arrows.arrows(package))
