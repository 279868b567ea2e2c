"""The pages of the documentation, for the tests of both packages."""

import doctest
import re
from pathlib import Path

from tools.api_page import expanded

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]  # by hand
TEXTS = [*PAGES, *sorted((ROOT / "docs" / "papers").glob("*.md")), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def text(path: Path) -> str:
    return path.read_text("utf-8")


def in_one_line(path: Path) -> str:
    """The page without its line breaks, to look for sentences."""
    return " ".join(text(path).split())


def api_page() -> str:
    """The page of the library's names as mkdocs gets it."""
    return expanded(text(ROOT / "docs" / "api.md"))


def is_of_the_lab(page: Path) -> bool:
    """True if the examples of a page need the lab."""
    return re.search(r"^>>> .*spectralgrad_lab", text(page), re.MULTILINE) is not None


def run_examples(page: Path, *registries: dict) -> None:
    """Run a page in a namespace of its own, in which nothing has been imported; what it registers is forgotten."""
    known = [(names, set(names)) for names in registries]
    examples = doctest.DocTestParser().get_doctest(text(page), {}, page.name, str(page), 0)
    report: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.DocTestRunner(optionflags=flags).run(examples, out=report.append)
    for names, before in known:
        for name in set(names) - before:
            del names[name]
    assert result.failed == 0, "".join(report)
