"""Records which lines each test executes, by adding a reporting call to every statement of the mutated files."""

from __future__ import annotations

import ast
import builtins
import collections
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from .mistakes import functions, parsed

Record = dict[str, tuple[float, dict[str, list[int] | None]]]


def recorded(store: Path, files: list[Path]) -> Record:
    """For each test, its time in seconds and the lines it executes in each file; None if the file has changed since.

    Tests that failed are missing, so that they judge no mutant.
    """
    if not store.exists():
        return {}
    now = {str(path): digest(path) for path in files}
    stored = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
    current = lambda file, then, lines: lines if now.get(file) == then else None  # noqa: E731
    return {
        name: (seconds, {file: current(file, *found) for file, found in seen.items()})
        for name, seconds, seen in stored
        if seen is not None
    }


def digest(path: Path) -> str:
    """A short hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def record(
    items: list[pytest.Item], store: Path, files: list[Path], replace: Callable[..., None], run: Callable[..., bool]
) -> None:
    """Run the tests, and append the name, the time in seconds and the lines of each to ``store``.

    Args:
        items: the tests.
        store: the file to append to; it gets None for the lines of a test that fails.
        files: the modules whose lines are recorded.
        replace: replaces the code of functions.
        run: runs a test; returns whether it passed.
    """
    digests = {str(path): digest(path) for path in files}
    for path in files:
        replace(functions(parsed(str(path)), _Reporting(str(path)).visit(parsed(str(path), fresh=True)), str(path)))
    seen: dict[str, set[int]] = collections.defaultdict(set)
    builtins._seen_line = lambda file, line: seen[file].add(line)  # type: ignore[attr-defined]
    with store.open("a", encoding="utf-8") as file:
        for item in items:
            seen.clear()
            start = _processor_time()
            passed = run(item)
            lines = {name: (digests[name], sorted(numbers)) for name, numbers in seen.items()}
            file.write(json.dumps([item.nodeid, _processor_time() - start, lines if passed else None]) + "\n")
            file.flush()


def _processor_time() -> float:
    """Seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


class _Reporting(ast.NodeTransformer):
    """Inserts the calls into functions; what is executed at import stays as it is."""

    def __init__(self, file: str) -> None:
        self.file, self.depth = file, 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody") if self.depth else ():
            statements = getattr(node, field, None)
            if isinstance(statements, list) and not isinstance(node, ast.ClassDef):
                inserted = [[ast.Expr(self._report(inner)), inner] for inner in statements]
                setattr(node, field, [ast.fix_missing_locations(x) for pair in inserted for x in pair])
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.generic_visit(node)
        node.body = ast.fix_missing_locations(ast.BoolOp(ast.Or(), [self._report(node), node.body]))
        return node

    def _report(self, node: ast.AST) -> ast.Call:
        call = ast.Call(ast.Name("_seen_line", ast.Load()), [ast.Constant(self.file), ast.Constant(node.lineno)], [])
        return ast.copy_location(call, node)
