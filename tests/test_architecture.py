"""Arrows point one way: no module imports one that stands above it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import spectralgrad

PACKAGE = Path(spectralgrad.__file__).parent
LEVELS = [
    ["version", "errors", "files", "lazy", "output", "plugins"],
    ["torch_internals"],
    ["precision", "transforms", "overrides", "native"],
    ["hermitian"],
    ["methods", "solvers"],
    ["gauge", "iterative", "spectra", "divided", "roots", "frechet", "gram"],
    ["eigh", "svd", "spectral", "functions", "polar", "covariance", "testing"],
    ["nn"],
    ["optim", "training", "diagnostics", "bench"],
    ["transfer", "lab"],
    ["cli", "__main__", "__init__"],
]
RANK = {name: level for level, names in enumerate(LEVELS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def _imports(file: Path) -> set[str]:
    """First-level modules of this package that a file imports, at the top or inside functions."""
    folder = file.relative_to(PACKAGE).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - (node.level - 1)]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {(*base, *name.split("."))[0] for name in names}
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_no_arrow_points_up(file):
    here = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    above = {name for name in _imports(file) if RANK[name] > RANK[here]}
    assert not above


def test_private_names_of_torch_stand_in_one_file():
    private = re.compile(r"torch\._C\b|torch\._functorch|forward_ad\._")
    found = {file.name for file in FILES if private.search(file.read_text(encoding="utf-8"))}
    assert found == {"torch_internals.py"}


def test_init_files_only_re_export():
    for file in (f for f in FILES if f.name == "__init__.py"):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        assert all(isinstance(node, ast.ImportFrom | ast.Import | ast.Assign | ast.Expr) for node in body), file


def test_every_public_name_has_a_docstring_with_an_example():
    for name in spectralgrad.__all__:
        thing = getattr(spectralgrad, name)
        if callable(thing) and not issubclass(type(thing), type(ast)) and name not in ("Method", "methods"):
            documented = thing.__doc__ or ""
            is_error = isinstance(thing, type) and issubclass(thing, Exception)
            assert documented, name
            assert is_error or ">>>" in documented, name


def test_importing_the_package_loads_the_core_only():
    code = (
        "import sys, spectralgrad; before = set(sys.modules); spectralgrad.nn, spectralgrad.diagnostics\n"
        "parts = ('nn', 'optim', 'training', 'diagnostics', 'lab', 'bench')\n"
        "print([p for p in parts if f'spectralgrad.{p}' in before], 'spectralgrad.nn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]
