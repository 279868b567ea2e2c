"""Draw a diagram of the rooms of both packages and the imports between them, from the code.

    python tools/arrows.py            # writes docs/images/rooms.svg
    python tools/arrows.py --list     # prints every arrow instead, including those that the diagram omits

A room is a module or subpackage directly inside a package. An arrow leads from a room to a room that it imports. The
diagram omits arrows that others imply (a → c if there are a → b and b → c) and modules whose names start with an
underscore. The tooltip of a room is the first line of its docstring.
"""

from __future__ import annotations

import ast
import sys
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
PACKAGES = (ROOT / "lab" / "spectralgrad_lab", ROOT / "spectralgrad")  # from top to bottom: the lab uses the library

Graph = dict[str, set[str]]
Point = tuple[float, float]

_BOX, _LINE = (124, 32), (144, 70)  # width and height of a box, and distance between the centers of boxes
_STYLE = """\
text { font: 13px ui-monospace, Menlo, Consolas, monospace; text-anchor: middle; fill: #1a1a1a }
.name { font: bold 15px system-ui, sans-serif; text-anchor: start }
.package { fill: #f3f5fb; stroke: #c5cae9 }
.room { fill: #fff; stroke: #3f51b5; stroke-width: 1.2 }
.arrow { fill: none; stroke: #5c6370; stroke-width: 1.2; marker-end: url(#tip) }"""
_TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#5c6370"/></marker>'
)


def arrows(package: Path) -> Graph:
    """Room → the rooms of the same package that it imports, at module level or inside a function."""
    graph: Graph = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        graph.setdefault(parts[0], set()).update(imported(file, parts[:-1]))
    rooms = {name for name in graph if not name.startswith("_")}
    return {room: (graph[room] & rooms) - {room} for room in sorted(rooms)}


def imported(file: Path, folder: tuple[str, ...]) -> set[str]:
    """Rooms of the same package that a file in ``folder`` imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - (node.level - 1)]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {(*base, *name.split("."))[0] for name in names}
    return found


def reach(graph: Graph, room: str) -> set[str]:
    """All rooms that can be reached from ``room``.

    Raises:
        ValueError: ``room`` is among them, so the imports form a cycle.
    """
    seen: set[str] = set()
    waiting = list(graph[room])
    while waiting:
        name = waiting.pop()
        if name == room:
            raise ValueError(f"expected imports without cycles, got a cycle through {room}")
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen


def reduced(graph: Graph) -> Graph:
    """The graph without the arrows that others imply."""
    beyond = {room: reach(graph, room) for room in graph}
    return {room: {name for name in to if not any(name in beyond[other] for other in to)} for room, to in graph.items()}


def depths(graph: Graph) -> dict[str, int]:
    """The row of each room, counted from the top: below all rooms that import it.

    A room that no other imports is placed directly above the highest room that it imports.
    """
    found: dict[str, int] = {}
    users = {room: {other for other, to in graph.items() if room in to} for room in graph}
    for room in sorted(graph, key=lambda room: -len(reach(graph, room))):
        found[room] = 1 + max((found[user] for user in users[room]), default=-1)
    alone = {room: min(found[name] for name in graph[room]) - 1 for room in graph if graph[room] and not users[room]}
    return found | alone


def routes(graph: Graph) -> list[list[str]]:
    """Each arrow as a list of points: a room, a gap "a→b@row" in each row between, a room."""
    depth = depths(graph)
    return [
        [room, *(f"{room}→{name}@{row}" for row in range(depth[room] + 1, depth[name])), name]
        for room in graph
        for name in sorted(graph[room])
    ]


def places(graph: Graph) -> dict[str, Point]:
    """Room or gap → its center; each row is sorted by the mean position of the points above that lead to it."""
    depth, above = depths(graph), dict.fromkeys(graph, ())
    for route in routes(graph):
        for upper, lower in pairwise(route):
            above[lower] = (*above.get(lower, ()), upper)
    found: dict[str, Point] = {}
    for level in range(max(depth.values()) + 1):
        row = [name for name in above if (depth[name] if name in depth else int(name.split("@")[1])) == level]
        middles = {name: [found[upper][0] for upper in above[name]] or [0.0] for name in row}
        row.sort(key=lambda name: sum(middles[name]) / len(middles[name]))
        for place, name in enumerate(row):
            found[name] = ((place - (len(row) - 1) / 2) * _LINE[0], level * _LINE[1])
    return found


def _drawn(package: Path, middle: float, top: float) -> list[str]:
    """The boxes and arrows of one package, with the first row at height ``top``."""
    graph = reduced(arrows(package))
    center = {name: (middle + x, top + y) for name, (x, y) in places(graph).items()}
    lines = [_arrow([center[name] for name in route]) for route in routes(graph)]
    for room in graph:
        x, y = center[room]
        corner = f'x="{x - _BOX[0] / 2:g}" y="{y - _BOX[1] / 2:g}" width="{_BOX[0]}" height="{_BOX[1]}"'
        lines.append(f'<g><title>{escape(_about(package / room))}</title><rect class="room" rx="5" {corner}/>')
        lines.append(f'<text x="{x:g}" y="{y + 4:g}">{room}</text></g>')
    return lines


def _arrow(points: list[Point]) -> str:
    """A curve from the lower edge of the first box to the upper edge of the last, vertical where it crosses a row."""
    half = _BOX[1] / 2
    path = f"M{points[0][0]:g} {points[0][1] + half:g}"
    for (x, y), (u, v) in pairwise(points):
        path += f"C{x:g} {(y + v) / 2:g} {u:g} {(y + v) / 2:g} {u:g} {v - half:g}V{v + half:g}"
    return f'<path class="arrow" d="{path[: path.rindex("V")]}"/>'


def _about(room: Path) -> str:
    file = room / "__init__.py" if room.is_dir() else room.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n")[0]


def draw() -> str:
    """The diagram as SVG."""
    spread = [places(reduced(arrows(package))).values() for package in PACKAGES]
    width = max(x for points in spread for x, _ in points) * 2 + _LINE[0] + 40
    lines, top = [], 10.0
    for package, points in zip(PACKAGES, spread, strict=True):
        height = max(y for _, y in points) + _BOX[1] + 70
        lines.append(f'<rect class="package" rx="10" x="10" y="{top:g}" width="{width - 20:g}" height="{height:g}"/>')
        lines.append(f'<text class="name" x="24" y="{top + 26:g}">{package.name}</text>')
        lines += _drawn(package, width / 2, top + 62)
        top += height
        if package != PACKAGES[-1]:
            lines.append(f'<path class="arrow" d="M{width / 2:g} {top:g}V{top + 40:g}"/>')
            top += 40
    size = f'width="{width:g}" height="{top + 10:g}" viewBox="0 0 {width:g} {top + 10:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>\n{_STYLE}\n</style>\n<defs>{_TIP}</defs>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *lines, "</svg>"]) + "\n"


def main() -> None:
    """Write the diagram, or list the arrows."""
    if "--list" not in sys.argv[1:]:
        PICTURE.write_text(draw(), encoding="utf-8")
        return
    for package in PACKAGES:
        print(package.name)
        for room, to in arrows(package).items():
            print(f"    {room:<16} → {', '.join(sorted(to)) or '–'}")


if __name__ == "__main__":
    main()
