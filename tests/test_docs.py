"""The documentation runs, names everything that is public, and its links lead somewhere."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.diagnostics import gradient_error_plot
from spectralgrad.rules import METHODS
from spectralgrad_lab.data import DATASETS
from tools import arrows

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def text(path: Path) -> str:
    return path.read_text("utf-8")


def anchors(path: Path) -> set[str]:
    """The ids that both GitHub and mkdocs give to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", text(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.fixture
def forgotten():
    """Names that a page registers are its own."""
    known = [(names, dict(names)) for names in (METHODS, DATASETS)]
    yield
    for names, before in known:
        for name in set(names) - set(before):
            del names[name]


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run(page):
    """Each page in a namespace of its own, in which nothing has been imported."""
    examples = doctest.DocTestParser().get_doctest(text(page), {}, page.name, str(page), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples, out=report.append)
    assert result.failed == 0, "".join(report)


def test_the_guide_pages_have_examples():
    silent = {page.stem for page in PAGES if ">>>" not in text(page)}
    assert silent == {"api", "benchmarks", "lab-api"}


def test_fences_are_closed_after_a_blank_line():
    """Without it doctest takes the closing fence for output."""
    for page in PAGES:
        for block in re.findall(r"^```pycon\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL):
            assert block.endswith("\n\n"), f"{page.name}: {block[-80:]!r}"


@pytest.mark.parametrize("name", sg.__all__)
def test_every_public_name_is_documented(name):
    pages = "\n".join(text(page) for page in PAGES if page.parent.name == "docs")
    assert re.search(rf"(?<![\w.])(?:sg\.|spectralgrad\.)?{re.escape(name)}\b", pages)


@pytest.mark.parametrize("name", sg.methods())
def test_every_method_has_its_section(name):
    assert f"\n## {name}\n" in text(ROOT / "docs" / "methods.md")


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_relative_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page.name}: {target}"


@pytest.mark.parametrize("name", ["README.md", "CITATION.cff"])
def test_the_citation_has_the_version(name):
    assert re.search(rf"^\s*version\s*[:=]\s*{{?{re.escape(sg.__version__)}}}?", text(ROOT / name), re.MULTILINE)


def test_the_api_page_lists_every_callable():
    listed = text(ROOT / "docs" / "api.md")
    modules = {"diagnostics", "errors", "solvers", "__version__"}
    missing = [name for name in sg.__all__ if name not in modules and not re.search(rf"\b{name}\b", listed)]
    assert missing == []


def test_the_picture_of_the_rooms_is_up_to_date():
    assert arrows.PICTURE.read_text("utf-8") == arrows.draw(), "run: python tools/arrows.py"


def test_the_table_of_rooms_is_complete():
    """CONTRIBUTING.md names each room, and no other."""
    section = text(ROOT / "CONTRIBUTING.md").split("\n## The rooms\n")[1].split("\n## ")[0]
    tables = re.findall(r"((?:^\|.*\n)+)", section, re.MULTILINE)
    for package, table in zip(reversed(arrows.PACKAGES), tables, strict=True):
        assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == set(arrows.arrows(package))


def test_the_picture_shows_what_the_text_beside_it_says():
    errors = {name: np.array(values) for name, values in gradient_error_plot.measure("inv_sqrt", draws=1).items()}
    assert errors["exact"].max() < 1e-12
    assert np.isnan(errors[None][-1])
    assert np.isfinite(errors[None][:-1]).all()
    assert errors[None][10] > 1e4 * errors["exact"][10]
    for name in ("svd-taylor", "svd-clip", "newton-schulz"):
        assert (errors[name][3:] > 0.1).all()


def test_the_picture_is_drawn(tmp_path):
    gradient_error_plot.gradient_error(tmp_path / "picture.svg", "sqrt", draws=1)
    assert "svg" in (tmp_path / "picture.svg").read_text("utf-8")[:400]


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gradient_error_plot, "find_spec", lambda name: None if name == "matplotlib" else object())
    assert main(["conformance", "--plot", str(tmp_path / "picture.png")]) == 1
    assert "requires matplotlib: pip install 'spectralgrad[plots]'" in capsys.readouterr().err
