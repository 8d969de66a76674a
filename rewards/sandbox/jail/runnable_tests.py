"""Parses tests, and refuses those that would pass, or fail, with any program.

A test is a text with assertions that run: at the top, in a `check` (called with the entry point) or
in a pytest function. What it imports from `solution` is the program's.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from .trusted_names import find_free_names, find_function_under_test

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PREPARATIONS = (*_FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
_PACKAGES = {"np", "pd"}
"""Names of packages that tests use without importing them."""


def parse_tests(
    setup: str, tests: Sequence[str | dict[str, Any]], entry_point: str
) -> list[ast.Module]:
    """The code of the setup and of each test, which is empty for a call with its result.

    Raises:
        ValueError: the tests are not Python, need a package, or hold with any program.
    """
    trees = [_parse(text if isinstance(text, str) else "") for text in (setup, *tests)]
    used = set[str]().union(*map(_names, trees))
    for tree in trees[1:]:
        tree.body += _call_tests(tree, used, entry_point)
    if packages := _PACKAGES & set(find_free_names(trees)):
        raise ValueError(f"the tests use {min(packages)} without importing it")
    used = used.union(*map(_names, trees))
    pairs = zip(tests, trees[1:], strict=True)
    texts = [(test, tree) for test, tree in pairs if isinstance(test, str)]
    empty = [test for test, tree in texts if not any(map(_is_assertion, _running(tree, used)))]
    for test, tree in texts:
        is_preparation = tree.body and all(isinstance(n, _PREPARATIONS) for n in tree.body)
        if test in empty and (len(empty) == len(texts) or not is_preparation):
            raise ValueError(f"a test has no assertion that runs: {test[:200]!r}")
    if texts and not find_function_under_test(trees):
        raise ValueError("the tests use nothing of the program")
    return trees


def _parse(text: str) -> ast.Module:
    """Code as it runs here: tests are not started by it, and what it imports is there."""
    try:
        tree = ast.parse(text)
        compile(tree, "<tests>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the tests do not compile: {error!r}") from error
    parts: list[ast.stmt] = []
    for node in tree.body:
        parts += (
            node.body if isinstance(node, ast.If) and "__name__" in _names(node.test) else [node]
        )
    tree.body = [node for node in parts if not ast.unparse(node).startswith("pytest.main(")]
    used = _names(tree) | {"*"}
    tree.body = [node for node in tree.body if not _is_void(node, used)]
    return tree


def _is_void(node: ast.stmt, used: set[str]) -> bool:
    """Whether this imports the program, or what the sandbox lacks and nothing uses."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return False
    module = node.names[0].name if isinstance(node, ast.Import) else node.module or "."
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    names = {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    own = isinstance(node, ast.ImportFrom) and not any(alias.asname for alias in node.names)
    if names & used and not (own and module == "solution"):
        raise ValueError(f"the tests import {module}; the sandbox has Python's library alone")
    return True


def _call_tests(tree: ast.Module, used: set[str], entry_point: str) -> list[ast.stmt]:
    """Calls of `check` and of the test functions that nothing else calls."""
    calls = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name in used:
            continue
        if node.name == "check" and not entry_point:
            raise ValueError(
                "the tests define `check`, and no entry_point is given to call it with"
            )
        if node.name == "check":
            calls.append(f"check({entry_point})")
        elif node.name.startswith("test"):
            calls.append(f"{node.name}()")
            if len(node.args.args) > len(node.args.defaults):
                raise ValueError(f"nothing gives {node.name} of the tests its arguments")
    return ast.parse("\n".join(calls)).body


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
