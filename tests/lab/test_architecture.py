"""The rooms of the lab, the arrows between them, which point one way, and what it uses of the library."""

import ast
from pathlib import Path

import spectralgrad
import spectralgrad_lab

from ..architecture import Package

LAB = Package(
    Path(spectralgrad_lab.__file__).parent,
    [
        ["import_by_name", "untrusted_json", "machine", "published"],
        ["data", "networks"],
        ["training"],
        ["comparison", "transfer"],
        ["report"],
        ["bench", "commands", "papers"],
        ["verify"],
        ["__init__"],
    ],
)
# What the lab may use of the library besides public names: documented helpers.
HELPERS = {
    "spectralgrad.diagnostics.conformance_cases",
    "spectralgrad.diagnostics.every_function",
    "spectralgrad.diagnostics.every_layer",
    "spectralgrad.diagnostics.fuzzing.families",
    "spectralgrad.diagnostics.other_implementations",
    "spectralgrad.diagnostics.table",
    "spectralgrad.dispatch",
    "spectralgrad.dispatch.custom_operators",
    "spectralgrad.io",
    "spectralgrad.io.files",
    "spectralgrad.io.memory",
    "spectralgrad.io.text_values",
    "spectralgrad.native",
    "spectralgrad.nn.distributed",
    "spectralgrad.nn.functional.pooling",
    "spectralgrad.nn.functional.whitening_matrices",
    "spectralgrad.nn.running_norm",
    "spectralgrad.precision",
    "spectralgrad.rules",
    "spectralgrad.solvers",
    "spectralgrad.testing",
}
PUBLIC = {
    "spectralgrad",
    *(f"spectralgrad.{name}" for name in ("diagnostics", "errors", "nn", "nn.functional", "optim", "training")),
}


def test_no_arrow_points_up_or_to_the_side():
    wrong = {LAB.name(file): LAB.arrows_up(file) for file in LAB.files}
    assert {name: arrows for name, arrows in wrong.items() if any(arrows)} == {}


def test_the_lab_uses_public_names_and_documented_helpers():
    private = {LAB.name(file): _used_of_the_library(file) - PUBLIC - HELPERS for file in LAB.files}
    assert {name: modules for name, modules in private.items() if modules} == {}


def _used_of_the_library(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    return {m for m in modules if m.split(".")[0] == "spectralgrad"}


def test_no_name_is_both_a_module_and_something_else():
    """In any package, so that ``package.name`` means one thing."""
    assert LAB.names_of_two_things() == {}


def test_versions_are_in_step():
    assert spectralgrad.__version__ == spectralgrad_lab.__version__


def test_private_names_of_torch_are_left_to_the_library():
    """Except for the pretended device, which is made of them."""
    assert LAB.files_with_private_names_of_torch() == {"pretended_device.py"}


def test_init_files_only_re_export():
    assert LAB.inits_that_compute() == []
