"""What the tests of both packages ask about rooms and the arrows between them."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from tools import arrows

_PRIVATE = re.compile(r"torch\._C\b|torch\._functorch|forward_ad\._|\._get_backend\b")


@dataclass(frozen=True)
class Package:
    """A package and its rooms, from the bottom to the top.

    A room may import those of earlier lines, and modules of its own.
    """

    root: Path
    levels: list[list[str]]

    @property
    def files(self) -> list[Path]:
        return sorted(self.root.rglob("*.py"))

    def name(self, file: Path) -> str:
        return f"{self.root.name}/{file.relative_to(self.root)}"

    def arrows_up(self, file: Path) -> tuple[set[str], set[str]]:
        """The rooms that a file imports from above its own, and from the same level."""
        rank = {name: level for level, names in enumerate(self.levels) for name in names}
        parts = file.relative_to(self.root).with_suffix("").parts
        here = rank[parts[0]]
        others = arrows.imported(file, parts[:-1]) - {parts[0], "__version__"}
        return {x for x in others if rank[x] > here}, {x for x in others if rank[x] == here}

    def names_of_two_things(self) -> dict[str, set[str]]:
        """For each subpackage the names that it imports and that are also modules in it."""
        found = {}
        for file in self._inits():
            modules = {path.stem for path in file.parent.iterdir() if path.suffix in ("", ".py")}
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ImportFrom) and node.module:  # `from . import name` imports the module itself
                    both = set(self._imported_names(file, node)) & modules
                    if both:
                        found[self.name(file)] = both
        return found

    def _imported_names(self, file: Path, node: ast.ImportFrom) -> list[str]:
        """The names that a statement in an ``__init__.py`` defines, also for ``import *`` from a file of the folder."""
        names = [alias.asname or alias.name for alias in node.names]
        source = file.parent / f"{node.module}.py"
        if names != ["*"] or node.level != 1 or not source.exists():
            return names
        body = ast.parse(source.read_text(encoding="utf-8")).body
        lists = [x.value for x in body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "__all__"]
        return [name for value in lists for name in ast.literal_eval(value)]

    def inits_that_compute(self) -> list[str]:
        """The ``__init__.py`` that do more than to re-export."""
        allowed = ast.ImportFrom | ast.Import | ast.Assign | ast.Expr | ast.If
        return [
            self.name(file)
            for file in self._inits()
            if not all(isinstance(node, allowed) for node in ast.parse(file.read_text(encoding="utf-8")).body)
        ]

    def files_with_private_names_of_torch(self) -> set[str]:
        return {file.name for file in self.files if _PRIVATE.search(file.read_text(encoding="utf-8"))}

    def _inits(self) -> list[Path]:
        return [file for file in self.files if file.name == "__init__.py"]
