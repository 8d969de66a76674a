"""Parses tests, finds what they use of the program, and refuses those that hold with any program.

A test is a text with assertions that run: at the top, or in a `check` that is called with the entry
point. A candidate that defines its own `set`, `len` or `math` must not influence how its answer is
compared: builtins, modules of the standard library and its usual names are the real ones. Only the
function under test may have such a name too (MBPP has one called `sum`).
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
from collections.abc import Iterator, Sequence
from typing import Any

_SOURCES = (builtins, collections, typing, math, fractions, decimal, itertools, functools, datetime)
_STANDARD = {
    name: getattr(module, name)
    for module in reversed(_SOURCES)
    for name in dir(module)
    if not name.startswith("_")
}
MODULES = sys.stdlib_module_names
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PACKAGES = {"np", "pd"}
"""Names of packages that tests use without importing them."""


def parse_tests(
    setup: str, tests: Sequence[str | dict[str, Any]], entry_point: str
) -> list[ast.Module]:
    """The code of the setup and of each test, which is empty for a call with its result. Raises
    ValueError: the tests are not Python, need a package, or hold with any program."""
    trees = [_parse(text if isinstance(text, str) else "") for text in (setup, *tests)]
    for tree in trees[1:]:
        if any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
            if not entry_point:
                raise ValueError("the tests define `check`, and no entry_point is given for it")
            tree.body += ast.parse(f"check({entry_point})").body
    if packages := _PACKAGES & set(_find_free_names(trees)):
        raise ValueError(f"the tests use {min(packages)} without importing it")
    used = set[str]().union(*map(_names, trees))
    texts = [tree for test, tree in zip(tests, trees[1:], strict=True) if isinstance(test, str)]
    if texts and not any(_is_assertion(node) for tree in texts for node in _running(tree, used)):
        raise ValueError(f"the tests have no assertion that runs: {str(tests)[:200]}")
    if texts and not find_program_names(trees, entry_point):
        raise ValueError("the tests use nothing of the program")
    return trees


def _parse(text: str) -> ast.Module:
    try:
        tree = ast.parse(text)
        compile(tree, "<tests>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the tests do not compile: {error!r}") from error
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name.partition(".")[0] not in MODULES:
                raise ValueError(f"the tests import {name}; the sandbox has Python's library alone")
    return tree


def _running(node: ast.AST, used: set[str]) -> Iterator[ast.AST]:
    """What is below a node, without functions that nothing calls."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, _FUNCTIONS) or each.name in used or each.name.startswith("__"):
            yield each
            yield from _running(each, used)


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):  # a tuple, such as (f(1) == 2, "message"), is always true
        always = isinstance(node.test, ast.Constant) and node.test.value
        return not always and not isinstance(node.test, ast.Tuple)
    return isinstance(node, ast.Raise)


def _names(tree: ast.AST) -> set[str]:
    """Names and attributes that are used."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _find_free_names(trees: Sequence[ast.AST]) -> list[str]:
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


def find_program_names(trees: Sequence[ast.AST], entry_point: str) -> list[str]:
    """Names that the tests use of the program: the entry point, and those without a standard
    meaning. If all have one, as in `sorted(permutations([1]))`, it is the innermost call of the
    first assertion; those around it prepare the comparison."""
    needed = _find_free_names(trees)
    standard = {*_STANDARD, *MODULES} - {entry_point}
    if own := [name for name in needed if name not in standard]:
        return own
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Assert):
            value = node.test.left if isinstance(node.test, ast.Compare) else node.test
            calls = [each.func for each in ast.walk(value) if isinstance(each, ast.Call)]
            names = [function.id for function in calls if isinstance(function, ast.Name)]
            if inner := [name for name in names if name in needed]:
                return inner[-1:]
    return []


def find_standard_names(trees: Sequence[ast.AST], entry_point: str) -> dict[str, Any]:
    """The library's own objects and modules that the tests use."""
    names = set(_find_free_names(trees)) - set(find_program_names(trees, entry_point))
    return {n: _STANDARD[n] if n in _STANDARD else importlib.import_module(n) for n in names}
