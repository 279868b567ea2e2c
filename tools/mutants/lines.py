"""Records which lines each test executes, by adding a reporting call to every statement of the mutated files."""

from __future__ import annotations

import ast
import builtins
import collections
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .mistakes import functions, parsed
from .settings import files


def record(items: list[pytest.Item], store: Path, replace: Callable[..., None], run: Callable[..., None]) -> None:
    """Run the tests, and append the name, the time in seconds and the lines of each to ``store``."""
    for path in files([]):
        replace(functions(parsed(str(path)), _Reporting(str(path)).visit(parsed(str(path), fresh=True)), str(path)))
    seen: dict[str, set[int]] = collections.defaultdict(set)
    builtins._seen_line = lambda file, line: seen[file].add(line)  # type: ignore[attr-defined]
    with store.open("a", encoding="utf-8") as file:
        for item in items:
            seen.clear()
            start = time.process_time()
            run(item)
            lines = {name: sorted(numbers) for name, numbers in seen.items()}
            file.write(json.dumps([item.nodeid, [time.process_time() - start, lines]]) + "\n")
            file.flush()


class _Reporting(ast.NodeTransformer):
    def __init__(self, file: str) -> None:
        self.file = file

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and not isinstance(node, ast.Module | ast.ClassDef):
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
