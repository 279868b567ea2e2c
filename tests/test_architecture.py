"""The rooms of both packages, and the arrows between them, which point one way."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import spectralgrad
import spectralgrad_lab
from spectralgrad._lazy import _LAZY

# From the bottom to the top. A room may import those of earlier lines, and modules of its own.
LIBRARY = [
    ["_lazy", "errors", "io", "dispatch"],
    ["precision", "native"],
    ["solvers"],
    ["autograd"],
    ["rules"],
    ["linalg", "testing"],
    ["nn"],
    ["optim", "training", "diagnostics"],
    ["cli", "__main__", "__init__"],
]
LAB = [
    ["import_by_name", "untrusted_json", "machine", "published"],
    ["data", "networks"],
    ["training"],
    ["comparison"],
    ["report"],
    ["bench", "commands"],
    ["__init__"],
]
# What the lab may use of the library besides public names: documented helpers.
HELPERS = {
    "spectralgrad.diagnostics.peers",
    "spectralgrad.diagnostics.table",
    "spectralgrad.dispatch.torch_internals",
    "spectralgrad.io",
    "spectralgrad.io.files",
    "spectralgrad.io.text_values",
    "spectralgrad.native",
    "spectralgrad.nn.distributed",
    "spectralgrad.nn.functional.pooling",
    "spectralgrad.nn.functional.whitening_matrices",
    "spectralgrad.nn.running",
    "spectralgrad.precision",
    "spectralgrad.rules",
    "spectralgrad.testing",
}
PUBLIC = {
    "spectralgrad",
    *(f"spectralgrad.{name}" for name in ("diagnostics", "errors", "nn", "nn.functional", "optim", "training")),
}
PACKAGES = {Path(spectralgrad.__file__).parent: LIBRARY, Path(spectralgrad_lab.__file__).parent: LAB}
FILES = [(file, root) for root in PACKAGES for file in sorted(root.rglob("*.py"))]
NAMES = [f"{root.name}/{file.relative_to(root)}" for file, root in FILES]


def _imported(file: Path, root: Path) -> set[str]:
    """Rooms of the same package that a file imports, at the top or inside functions."""
    folder = file.relative_to(root).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - (node.level - 1)]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {(*base, *name.split("."))[0] for name in names}
    return {name for name in found if name != "__version__"}


@pytest.mark.parametrize(("file", "root"), FILES, ids=NAMES)
def test_no_arrow_points_up(file, root):
    levels = PACKAGES[root]
    rank = {name: level for level, names in enumerate(levels) for name in names}
    here = file.relative_to(root).parts[0].removesuffix(".py")
    above = {name for name in _imported(file, root) if name != here and rank[name] >= rank[here]}
    beside = {name for name in above if rank[name] == rank[here]}
    assert not above - beside
    if root.name == "spectralgrad_lab":
        assert not beside


def test_the_top_of_the_library_is_small():
    names = {path.stem for path in Path(spectralgrad.__file__).parent.iterdir() if path.suffix in ("", ".py")}
    assert len({name for name in names if not name.startswith("_")}) <= 15


@pytest.mark.parametrize("file", [file for file, root in FILES if PACKAGES[root] is LAB], ids=lambda file: file.name)
def test_the_lab_uses_public_names_and_documented_helpers(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    assert {m for m in modules if m.split(".")[0] == "spectralgrad"} <= PUBLIC | HELPERS


def test_the_library_does_not_know_the_lab():
    for file, root in FILES:
        if root.name == "spectralgrad":
            assert "spectralgrad_lab" not in file.read_text(encoding="utf-8"), file


def test_no_name_is_both_a_module_and_something_else():
    """In any package, so that ``package.name`` means one thing."""
    for file, root in FILES:
        if file.name != "__init__.py":
            continue
        modules = {path.stem for path in file.parent.iterdir() if path.suffix in ("", ".py")}
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module:  # `from . import name` imports the module itself
                names = {alias.asname or alias.name for alias in node.names}
                assert not names & modules, f"{root.name}: {file.parent.name}"


def test_versions_are_in_step():
    assert spectralgrad.__version__ == spectralgrad_lab.__version__


def test_private_names_of_torch_stand_in_one_file():
    private = re.compile(r"torch\._C\b|torch\._functorch|forward_ad\._|\._get_backend\b")
    found = {file.name for file, _ in FILES if private.search(file.read_text(encoding="utf-8"))}
    assert found == {"torch_internals.py"}


def test_init_files_only_re_export():
    for file, _ in FILES:
        if file.name == "__init__.py":
            body = ast.parse(file.read_text(encoding="utf-8")).body
            assert all(
                isinstance(node, ast.ImportFrom | ast.Import | ast.Assign | ast.Expr | ast.If) for node in body
            ), file


def test_every_public_name_has_a_docstring_with_an_example():
    for name in spectralgrad.__all__:
        thing = getattr(spectralgrad, name)
        if callable(thing) and not issubclass(type(thing), type(ast)) and name not in ("Method", "methods"):
            documented = thing.__doc__ or ""
            is_error = isinstance(thing, type) and issubclass(thing, Exception)
            assert documented, name
            assert is_error or ">>>" in documented, name


def test_subpackages_that_load_later_are_listed_and_typed():
    """In a new process, where none has been used yet."""
    code = "import sys, spectralgrad as sg; print(*dir(sg)); print('spectralgrad.nn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed, loaded = done.stdout.splitlines()
    assert set(spectralgrad.__all__) <= set(listed.split())
    assert loaded == "False"
    body = ast.parse(Path(spectralgrad.__file__).read_text(encoding="utf-8")).body
    (condition,) = (node for node in body if isinstance(node, ast.If))
    assert ast.unparse(condition.test) == "TYPE_CHECKING"
    assert {alias.name for alias in condition.body[0].names} == _LAZY
    with pytest.raises(AttributeError, match="no attribute 'nm'"):
        spectralgrad.nm  # noqa: B018


def test_importing_the_package_loads_the_core_only():
    code = (
        "import sys, spectralgrad; before = set(sys.modules); spectralgrad.nn, spectralgrad.diagnostics\n"
        "parts = ('nn', 'optim', 'training', 'diagnostics')\n"
        "print([p for p in parts if f'spectralgrad.{p}' in before], 'spectralgrad.nn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]
