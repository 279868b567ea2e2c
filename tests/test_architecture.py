"""The rooms of the library, and the arrows between them, which point one way."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import spectralgrad
from spectralgrad._lazy import _LAZY

from . import forked
from .architecture import Package

LIBRARY = Package(
    Path(spectralgrad.__file__).parent,
    [
        ["_lazy", "_version", "errors", "io", "dispatch"],
        ["native"],
        ["precision"],
        ["solvers"],
        ["autograd"],
        ["rules"],
        ["linalg", "testing"],
        ["nn", "rescue"],
        ["optim", "training", "diagnostics"],
        ["cli", "__main__", "__init__"],
    ],
)


def test_no_arrow_points_up():
    above = {LIBRARY.name(file): LIBRARY.arrows_up(file)[0] for file in LIBRARY.files}
    assert {name: rooms for name, rooms in above.items() if rooms} == {}


def test_the_top_of_the_library_is_small():
    names = {path.stem for path in LIBRARY.root.iterdir() if path.suffix in ("", ".py")}
    assert len({name for name in names if not name.startswith("_")}) <= 16


def test_the_library_does_not_know_the_lab():
    for file in LIBRARY.files:
        assert "spectralgrad_lab" not in file.read_text(encoding="utf-8"), file


def test_no_name_is_both_a_module_and_something_else():
    """In any package, so that ``package.name`` means one thing."""
    assert LIBRARY.names_of_two_things() == {}


def test_private_names_of_torch_stand_in_one_file():
    assert LIBRARY.files_with_private_names_of_torch() == {"torch_internals.py"}


def test_derivatives_are_rules_that_state_what_they_keep():
    """Except for communication between processes, which torch.func cannot transform."""
    classes = r"class \w+\(torch\.autograd\.Function\)"
    plain = {file.name for file in LIBRARY.files if re.search(classes, file.read_text(encoding="utf-8"))}
    written = {file.name for file in LIBRARY.files if "def setup_context" in file.read_text(encoding="utf-8")}
    assert (plain, written) == ({"distributed.py"}, {"function.py"})


def test_init_files_only_re_export():
    assert LIBRARY.inits_that_compute() == []


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
    done = forked.run("-c", code, check=True)
    listed, loaded = done.stdout.splitlines()
    assert set(spectralgrad.__all__) - {"__version__"} == {x for x in listed.split() if not x.startswith("__")}
    assert loaded == "False"
    body = ast.parse(Path(spectralgrad.__file__).read_text(encoding="utf-8")).body
    (condition,) = (node for node in body if isinstance(node, ast.If))
    assert ast.unparse(condition.test) == "TYPE_CHECKING"
    assert {alias.name for node in condition.body for alias in node.names} == _LAZY
    with pytest.raises(AttributeError, match="no attribute 'nm'"):
        spectralgrad.nm  # noqa: B018


@pytest.mark.parametrize("name", ["linalg", "nn", "nn.functional", "optim", "training", "diagnostics", "solvers"])
def test_dir_lists_public_names_only(name):
    package = importlib.import_module(f"spectralgrad.{name}")
    assert [x for x in dir(package) if not x.startswith("__")] == sorted(package.__all__)
    assert "__doc__" in dir(package)


def test_importing_the_package_loads_the_core_only():
    code = (
        "import sys, spectralgrad; before = set(sys.modules); spectralgrad.nn, spectralgrad.diagnostics\n"
        "parts = ('nn', 'optim', 'training', 'diagnostics')\n"
        "print([p for p in parts if f'spectralgrad.{p}' in before], 'spectralgrad.nn' in sys.modules)"
    )
    done = forked.run("-c", code, check=True)
    assert done.stdout.split() == ["[]", "True"]
