"""The small mistakes: one changed operator, number, condition, term or statement each.

Text, annotations, error messages, assertions (``strict=True`` of zip is one), drawings, clocks and random seeds are not
mutated.
"""

from __future__ import annotations

import ast
import collections
import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

from .settings import ROOT

_BINARY = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_COMPARED = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


def _pairs(*words: str) -> dict[str, str]:
    return {a: b for word in words for a, b in (word.split(), word.split()[::-1])}


_SWAPPED = {"mH": "mT"} | _pairs(
    "min max", "amin amax", "any all", "minimum maximum", "clamp_min clamp_max", "tril triu"
)
_DROPPED_CALLS = {"conj", "abs", "detach", "sqrt", "square", "rsqrt", "flip", "clone"}  # x.abs() becomes x
_DROPPED_ATTRIBUTES = {"mH", "mT", "real"}
_IGNORED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Mutant:
    """One mistake: its file, a key that describes the change, its lines, and the path to the node in the tree."""

    file: str
    key: str
    lines: frozenset[int]
    path: tuple[tuple[str, int | None], ...]
    new: ast.AST

    def runs(self, lines: dict[str, list[int] | None], everywhere: bool) -> bool:
        """True if a test that executes these lines of each file (None: unknown lines) can detect the mutant."""
        touched = lines.get(self.file, [])
        return touched != [] if everywhere or touched is None else not self.lines.isdisjoint(touched)

    def tree(self) -> ast.Module:
        """The module with the mistake."""
        tree = parsed(self.file, fresh=True)
        node: ast.AST = tree
        for field, index in self.path[:-1]:
            node = _child(node, field, index)
        field, index = self.path[-1]
        old = _child(node, field, index)
        new = ast.fix_missing_locations(ast.copy_location(copy.deepcopy(self.new), old))
        if index is None:
            setattr(node, field, new)
        else:
            getattr(node, field)[index] = new
        return tree

    def codes(self) -> list[tuple[CodeType, CodeType]]:
        """The functions that the mistake changes, before and after; none if a new process is necessary."""
        return functions(parsed(self.file), self.tree(), self.file)


def functions(before: ast.Module, after: ast.Module, file: str) -> list[tuple[CodeType, CodeType]]:
    """The functions that differ, outer before inner; none if they can be replaced at import only.

    That is so if code executed at import differs, or the variables of an enclosing scope that a function uses.
    """
    old, new = (compile(tree, file, "exec", dont_inherit=True) for tree in (before, after))
    if _outside(old) != _outside(new):
        return []
    every = _functions(old), _functions(new)
    if len(every[0]) != len(every[1]):  # a function inside another is gone
        every = _outermost(old), _outermost(new)
    pairs = [pair for pair in zip(*every, strict=True) if pair[0] != pair[1]]
    return pairs if all(a.co_freevars == b.co_freevars for a, b in pairs) else []


def parsed(file: str, fresh: bool = False) -> ast.Module:
    """The syntax tree of a file; pass ``fresh`` to get a copy that may be modified."""
    return copy.deepcopy(_parsed(file)) if fresh else _parsed(file)


@cache
def _parsed(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _child(node: ast.AST, field: str, index: int | None) -> ast.AST:
    return getattr(node, field) if index is None else getattr(node, field)[index]


def _bodies(code: CodeType) -> Iterator[CodeType]:
    """The module and the bodies of its classes."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and inner.co_name.isidentifier() and not inner.co_flags & inspect.CO_OPTIMIZED:
            yield from _bodies(inner)


def _outermost(code: CodeType) -> list[CodeType]:
    """The functions of a module and of its classes."""
    inner = [c for body in _bodies(code) for c in body.co_consts if isinstance(c, CodeType)]
    return [c for c in inner if c.co_flags & inspect.CO_OPTIMIZED]


def _functions(code: CodeType) -> list[CodeType]:
    """These and the functions inside them, of which some exist as soon as a test file is read."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [c for c in inner if c.co_flags & inspect.CO_OPTIMIZED] + [c for part in inner for c in _functions(part)]


def _outside(code: CodeType) -> list[tuple[bytes, list[object]]]:
    """The code executed at import."""
    constants = lambda body: [repr(c) for c in body.co_consts if not isinstance(c, CodeType)]  # noqa: E731
    return [(body.co_code, constants(body), body.co_names) for body in _bodies(code)]


def mutants(file: Path) -> list[Mutant]:
    """All mutants of a file."""
    found: list[Mutant] = []
    seen: collections.Counter[str] = collections.Counter()
    for node, path, scope, lines in _nodes(_parsed(str(file)), (), [], frozenset()):
        for new in _mistakes(node, scope):
            old, text = (ast.unparse(x).splitlines()[0] for x in (node, new))
            key = f"{file.relative_to(ROOT)} {'.'.join(n for n, _ in scope) or 'module'}: {old} => {text}"
            seen[key] += 1
            found.append(Mutant(str(file), key + (f" #{seen[key]}" if seen[key] > 1 else ""), lines, path, new))
    return found


def _nodes(node, path, scope, lines):  # type: ignore[no-untyped-def]
    """All nodes that can be mutated, with their path from the root, enclosing functions and the statement's lines."""
    if isinstance(node, _IGNORED) or _is_ignored(node):
        return
    if isinstance(node, ast.stmt):
        lines = _lines(node)
    if path:
        yield node, path, scope, lines
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope = [*scope, (node.name, node)]
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "ctx", "op", "ops", "bases", "keywords_"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not _is_docstring(child):
                yield from _nodes(child, (*path, (field, index)), scope, lines)


def _lines(node: ast.stmt) -> frozenset[int]:
    """The lines of a statement, without its body."""
    inner = getattr(node, "body", None)
    last = inner[0].lineno - 1 if inner else node.end_lineno
    return frozenset(range(node.lineno, max(node.lineno, last) + 1))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_ignored(node: ast.AST) -> bool:
    """True for what is no mathematics, or what the tests that are run cannot tell."""
    if isinstance(node, ast.FunctionDef):
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        return node.name.startswith("draw") or any(name.startswith("draws(") for name in decorators)
    if isinstance(node, ast.keyword):
        return node.arg in ("strict", "seed")
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
        return True
    return isinstance(node, ast.Call | ast.UnaryOp | ast.BinOp) and _decided_outside(node)


def _decided_outside(node: ast.AST) -> bool:
    """True for an expression about the compiler (tests that compile are not run), a clock or a random seed."""
    text = ast.unparse(node)
    return any(word in text for word in ("is_compiling()", "exporting()", "perf_counter()", "manual_seed("))


def _mistakes(node: ast.AST, scope: list) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp):
        yield from _arithmetic(node)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for operator in _COMPARED[type(node.ops[0])]:
            yield ast.Compare(node.left, [operator()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        if not isinstance(node.operand, ast.Constant):  # numbers are changed below
            yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        yield ast.Constant(_other(node.value))
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield from _attributes(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.If) and not _decided_outside(node.test):
        for value in (True, False):
            yield ast.If(ast.Constant(value), node.body, node.orelse)
    elif isinstance(node, ast.stmt) and _deletable(node, scope):
        yield ast.Pass()


def _other(value: bool | int | float) -> bool | int | float:
    if isinstance(value, bool):
        return not value
    return 2 * value if isinstance(value, float) and value else value + 1


def _arithmetic(node: ast.BinOp) -> Iterator[ast.AST]:
    if type(node.op) in _BINARY:
        yield ast.BinOp(node.left, _BINARY[type(node.op)](), node.right)
    if isinstance(node.op, ast.Add | ast.Sub):
        yield node.left  # a term is lost


def _attributes(node: ast.Attribute) -> Iterator[ast.AST]:
    if node.attr in _SWAPPED:
        yield ast.Attribute(node.value, _SWAPPED[node.attr], node.ctx)
    if node.attr in _DROPPED_ATTRIBUTES:
        yield node.value


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if isinstance(node.func, ast.Attribute) and node.func.attr in _DROPPED_CALLS:
        yield node.func.value
    if name in _SWAPPED:
        yield ast.Call(ast.Name(_SWAPPED[name], ast.Load()), node.args, node.keywords)
    if name == "hermitian":
        yield node.args[0]
    if ast.unparse(node.func) == "torch.where":
        yield from node.args[1:]


def _deletable(node: ast.stmt, scope: list) -> bool:
    """Calls for their effect, and assignments to what already has a value."""
    if isinstance(node, ast.AugAssign):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if not isinstance(node, ast.Assign) or not scope or not isinstance(scope[-1][1], ast.FunctionDef):
        return False
    function = scope[-1][1]
    known = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    for inner in ast.walk(function):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) and inner.lineno < node.lineno:
            known.add(inner.id)
    targets = [name for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return all(isinstance(name.ctx, ast.Load) or name.id in known for name in targets)
