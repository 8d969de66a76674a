"""Which names in a test are standard ones, and which the candidate defines.

A candidate that defines its own `set`, `len` or `math` must not influence how its answer is
compared. Builtins, modules of the standard library and its usual names are therefore the real ones;
only the function under test may have such a name too (MBPP has one called `sum`).
"""

import ast
import builtins
import collections
import datetime
import decimal
import fractions
import functools
import importlib
import itertools
import math
import sys
import typing
from typing import Any


class NotInstalled(Exception):
    """A package that tests use is not installed."""


_SOURCES = (builtins, collections, typing, math, fractions, decimal, itertools, functools, datetime)
_STANDARD = {
    name: getattr(module, name)
    for module in reversed(_SOURCES)
    for name in dir(module)
    if not name.startswith("_")
}


ALIASES = {"np": "numpy", "pd": "pandas"}
"""Modules that tests use under these names without importing them."""


def is_standard(name: str) -> bool:
    """Whether a name belongs to Python and its library, or is the usual one of a package."""
    return name in _STANDARD or name in sys.stdlib_module_names or name in ALIASES


def find_standard(name: str) -> Any:
    """The library's own object or module of that name.

    Raises:
        NotInstalled: the package is not installed.
    """
    if name in _STANDARD:
        return _STANDARD[name]
    try:
        return importlib.import_module(ALIASES.get(name, name))
    except ImportError as error:
        raise NotInstalled(f"the tests use {name} without importing it: {error}") from error


def find_free_names(trees: list[ast.Module]) -> list[str]:
    """Names that the code uses and does not bind, in order."""
    bound, used = set(), {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used[node.id] = None
        elif isinstance(node, ast.Name):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return [name for name in used if name not in bound]


def find_function_under_test(trees: list[ast.Module]) -> str:
    """The function that assertions call: the first without a standard name, else one that they
    pass on, as in `all(map(f, xs))`. If all have standard names, as in `sorted(permutations([1]))`,
    it is the innermost call of the first assertion; those around it prepare the comparison."""
    needed = find_free_names(trees)
    called = [
        node.func.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in needed
    ]
    own = [name for name in (*called, *needed) if not is_standard(name)]
    return (own or _innermost(trees, set(needed)) or called or [""])[0]


def _innermost(trees: list[ast.Module], needed: set[str]) -> list[str]:
    """The name of the call that lies deepest in what the first assertion compares."""
    asserted = [
        node.test for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Assert)
    ]
    for test in asserted:
        value = test.left if isinstance(test, ast.Compare) else test
        depths = _depths(value, needed)
        if depths:
            return [max(depths, key=lambda each: each[0])[1]]  # of equals the first
    return []


def _depths(node: ast.AST, needed: set[str], depth: int = 0) -> list[tuple[int, str]]:
    """The calls below a node in order, each with its nesting depth."""
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    found = [(depth, name)] if name in needed else []
    inside = depth + 1 if isinstance(node, ast.Call) else depth
    return found + [d for each in ast.iter_child_nodes(node) for d in _depths(each, needed, inside)]
