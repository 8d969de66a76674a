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

_SOURCES = (builtins, collections, typing, math, fractions, decimal, itertools, functools, datetime)
_STANDARD = {
    name: getattr(module, name)
    for module in reversed(_SOURCES)
    for name in dir(module)
    if not name.startswith("_")
}


def is_standard(name: str) -> bool:
    """Whether a name belongs to Python and its library."""
    return name in _STANDARD or name in sys.stdlib_module_names


def find_standard(name: str) -> Any:
    """The library's own object or module of that name."""
    return _STANDARD[name] if name in _STANDARD else importlib.import_module(name)


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
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif name := getattr(node, "name", None):  # of a function, a class or an exception
            bound.add(name)
    return [name for name in used if name not in bound]


def find_function_under_test(trees: list[ast.Module]) -> str:
    """The function that assertions call: the first without a standard name, else one that they
    pass on, as in `all(map(f, xs))`. If all have standard names, as in `sorted(permutations([1]))`,
    it is the innermost call of the first assertion; those around it prepare the comparison."""
    needed = find_free_names(trees)
    called = [name for tree in trees for name in _find_calls(tree) if name in needed]
    if own := [name for name in (*called, *needed) if not is_standard(name)]:
        return own[0]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Assert):
            value = node.test.left if isinstance(node.test, ast.Compare) else node.test
            if inner := [name for name in _find_calls(value) if name in needed]:
                return inner[-1]
    return (called or [""])[0]


def _find_calls(tree: ast.AST) -> list[str]:
    """The names that are called, from the outermost to the innermost."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [function.id for function in calls if isinstance(function, ast.Name)]
