"""Who imports whom in a tree of packages, read from the source: nothing is imported for it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

Graph = dict[str, set[str]]


def find_modules(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """Dotted name -> file of every module; a package has the name of its folder."""
    walks = (os.walk(root / package, followlinks=True) for package in packages)
    found = (Path(folder, name) for walk in walks for folder, _, names in walk for name in names)
    files = sorted(path for path in found if path.suffix == ".py")
    names = (".".join(path.relative_to(root).with_suffix("").parts) for path in files)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, files, strict=True)}


def draw_imports(modules: Mapping[str, Path]) -> Graph:
    """Module -> the modules of the tree that it imports anywhere in its file: imports inside
    functions and those that only a type checker reads count too."""
    graph: Graph = {}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {each for node in ast.walk(tree) for each in _imported(node, package, modules)}
        graph[name] = found - {name}
    return graph


def _imported(node: ast.AST, package: str, modules: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        names = [f"{base}.{alias.name}" for alias in node.names]
    else:
        return
    for name in names:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        if name:
            yield name


def find_circles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import each other, directly or by way of others."""
    reached = {name: _reach(graph, name) for name in graph}
    groups = (
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in graph
        if name in reached[name]
    )
    return [list(group) for group in dict.fromkeys(groups)]


def _reach(graph: Graph, start: str) -> set[str]:
    found, open_ = set[str](), [start]
    while open_:
        new = graph[open_.pop()] - found
        found |= new
        open_ += new
    return found


def find_wrong_arrows(graph: Graph, order: Sequence[str], top: Iterable[str] = ()) -> list[str]:
    """Imports that do not lead from a room to an earlier one, and modules without a room.

    Args:
        graph: from `draw_imports`.
        order: rooms from bottom to top, each a module or a package with all that is in it; rooms
            of one line are on one level and must not import each other.
        top: modules above all rooms, wherever their files are.
    """
    levels = {room: n for n, line in enumerate(order) for room in line.split()}
    rooms = {name: _room(name, levels) for name in graph} | dict.fromkeys(top, "")
    levels[""] = len(order)
    homeless = [f"{name} belongs to no room" for name, room in rooms.items() if room is None]
    return homeless + [
        f"{name} imports {other}"
        for name in sorted(graph)
        for other in sorted(graph[name])
        if rooms[name] is not None and rooms[other] is not None
        if rooms[name] != rooms[other] and levels[rooms[name]] <= levels[rooms[other]]
    ]


def _room(name: str, levels: Mapping[str, int]) -> str | None:
    """The room of a module: the nearest one above it. A top-level package with rooms inside is a
    room for its own file alone."""
    above = [".".join(name.split(".")[:n]) for n in range(name.count(".") + 1, 0, -1)]
    holds_rooms = {room.partition(".")[0] for room in levels if "." in room}
    return next((a for a in above if a in levels and (a == name or a not in holds_rooms)), None)
