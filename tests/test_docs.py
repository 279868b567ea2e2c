"""The documentation runs, names everything that is public, and its links lead somewhere."""

import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.diagnostics import gradient_error_plot
from spectralgrad.rules import METHODS

from .documents import PAGES, ROOT, TEXTS, WRITTEN, api_page, is_of_the_lab, run_examples, text


def anchors(path: Path) -> set[str]:
    """The ids that both GitHub and mkdocs give to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", text(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if not is_of_the_lab(page)], ids=lambda page: page.stem)
def test_examples_run(page):
    run_examples(page, METHODS)


def test_the_guide_pages_have_examples():
    silent = {page.stem for page in PAGES if ">>>" not in text(page)}
    assert silent == {"api", "benchmarks", "lab-api"}


_ROLE = re.compile(r":(?:mod|func|class|meth|attr):`~?((?:\.|spectralgrad)[\w.]+)`")


@pytest.mark.parametrize("package", ["spectralgrad", "lab/spectralgrad_lab"])
def test_references_in_docstrings_lead_somewhere(package):
    top, dangling = (ROOT / package).parent, []
    for file in sorted((ROOT / package).rglob("*.py")):
        for target in _ROLE.findall(text(file)):
            name = importlib.util.resolve_name(target, ".".join(file.relative_to(top).parent.parts))
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                dangling.append(f"{file.relative_to(ROOT)}: {target}")
    assert dangling == []


def test_fences_are_closed_after_a_blank_line():
    """Without it doctest takes the closing fence for output."""
    for page in PAGES:
        for block in re.findall(r"^```pycon\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL):
            assert block.endswith("\n\n"), f"{page.name}: {block[-80:]!r}"


def test_every_public_name_is_in_the_guide():
    guide = "\n".join(text(page) for page in PAGES if page.parent.name == "docs" and "api" not in page.stem)
    mentioned = lambda name: re.search(rf"(?<![\w.])(?:sg\.|spectralgrad\.)?{re.escape(name)}\b", guide)  # noqa: E731
    assert [name for name in sg.__all__ if not mentioned(name)] == ["__version__"]


def test_every_method_has_its_section():
    sections = text(ROOT / "docs" / "methods.md")
    assert [name for name in sg.methods() if f"\n## {name}\n" not in sections] == []


def test_lines_have_at_most_120_columns():
    """Except in tables, examples and headings, and on pages that are generated."""
    long = [f"{page.relative_to(ROOT)}:{number}" for page in WRITTEN for number in _long_lines(text(page))]
    assert long == []


def _long_lines(page: str) -> Iterator[int]:
    in_code = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif len(line) > 120 and not in_code and not line.lstrip().startswith(("|", "#")):
            yield number


def test_sentences_name_the_thing_again():
    """Nouns are repeated: "that of", "those of" and "of which" make a reader look back. Comparable libraries have 4."""
    folders = (ROOT / "spectralgrad", ROOT / "lab" / "spectralgrad_lab")
    code = [file for folder in folders for file in folder.rglob("*") if file.suffix in (".py", ".hpp", ".cpp", ".j2")]
    found = {file.relative_to(ROOT).as_posix(): len(_BACKWARDS.findall(text(file))) for file in (*WRITTEN, *code)}
    left = {name: count for name, count in found.items() if count}
    assert sum(left.values()) <= 15, f"reword one of {left}"


_BACKWARDS = re.compile(r"\b(?:that|those)\s+of\b|\bof\s+which\b", re.IGNORECASE)


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
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


@pytest.mark.parametrize("name", ["", ".linalg", ".nn", ".nn.functional", ".optim", ".training", ".diagnostics"])
def test_the_api_page_lists_every_callable(name):
    package = importlib.import_module(f"spectralgrad{name}")
    listed = set(re.findall(r"^::: spectralgrad\.(\S+)$", api_page(), re.MULTILINE))
    shown = {f"{name[1:]}.{x}".lstrip(".") for x in package.__all__ if callable(getattr(package, x))}
    if name == ".linalg":
        shown -= {f"linalg.{x}" for x in sg.__all__}  # listed as names of the package itself
    assert shown - listed == set(), "add the file that defines them to docs/api.md"


def test_the_api_page_has_existing_names_only():
    listed = re.findall(r"^::: (\S+)$", api_page(), re.MULTILINE)
    assert len(set(listed)) == len(listed)
    for name in listed:
        pkgutil.resolve_name(name)


def test_the_picture_shows_what_the_text_beside_it_says():
    errors = {name: np.array(values) for name, values in gradient_error_plot.measure("inv_sqrt", draws=1).items()}
    assert errors["exact"].max() < 1e-12
    assert np.isnan(errors[None][-1])
    assert np.isfinite(errors[None][:-1]).all()
    assert errors[None][10] > 1e4 * errors["exact"][10]
    for name in ("svd-taylor", "svd-clip", "newton-schulz"):
        assert (errors[name][3:] > 0.1).all()


@pytest.mark.parametrize("function", ["sqrt", "polar"])
def test_the_picture_is_drawn(function, tmp_path):
    gradient_error_plot.gradient_error(tmp_path / "picture.svg", function, draws=1)
    assert "svg" in (tmp_path / "picture.svg").read_text("utf-8")[:400]


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gradient_error_plot, "find_spec", lambda name: None if name == "matplotlib" else object())
    assert main(["conformance", "--plot", str(tmp_path / "picture.png")]) == 1
    assert "requires matplotlib: pip install -e '.[plots]'" in capsys.readouterr().err
