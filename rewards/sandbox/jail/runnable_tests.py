"""Parses tests, and refuses those that would pass, or fail, with any program.

A test is a text with assertions that run: at the top, in a `check` (called with the entry point),
in a pytest function or class, or in a unittest class. What it imports from `solution` is the
program's.
"""

import ast
import sys
import unittest
from collections.abc import Iterator, Sequence
from typing import Any

from .trusted_names import find_function_under_test

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PREPARATIONS = (*_FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
_RUN_UNCALLED = ("test", "setup", "setUp", "tearDown", "__")
"""How the names of methods begin that run without a call in the tests."""
# JSON has no tuples, so a sequence of either kind answers for the other.
_CALL = """assert _plain(_function(*_case['input'])) in [
    _plain(_case[key]) for key in ('output', 'also') if key in _case]"""


def compile_tests(
    setup: str, tests: Sequence[str | dict[str, Any]], entry_point: str
) -> tuple[ast.Module, list[tuple[ast.Module, Any]]]:
    """The setup parsed; of each test the code that uses names of the program, and what is run.

    Raises:
        ValueError: the tests are not Python, need a package, or hold with any program.
    """
    trees = [_parse(text if isinstance(text, str) else "") for text in (setup, *tests)]
    for tree in trees[1:]:
        if entry_point and "check" in _defined(tree):
            tree.body += ast.parse(f"check({entry_point})").body
    used, found, asserted = set[str]().union(*map(_names, trees)), [], not tests
    if "check" in set().union(*map(_defined, trees)) - used:
        raise ValueError("the tests define `check`, and no entry_point is given to call it with")
    for test, tree in zip(tests, trees[1:], strict=True):
        case = test if isinstance(test, dict) else None
        whole = ast.parse(_CALL) if case else ast.Module([*tree.body, *_call_tests(tree, used)], [])
        asserts = any(map(_is_assertion, _running(whole, used)))
        if not asserts and not (tree.body and all(isinstance(n, _PREPARATIONS) for n in tree.body)):
            raise ValueError(f"a test has no assertion that runs: {str(test)[:200]!r}")
        asserted |= asserts
        found.append((tree, (compile(whole, "<test>", "exec"), case)))
    if not asserted:
        raise ValueError("the tests have no assertion that runs")
    if any(isinstance(test, str) for test in tests) and not find_function_under_test(trees):
        raise ValueError("the tests use nothing of the program")
    return trees[0], found


def run_defined(*tests: Any) -> None:
    """Run test functions, and the test methods of classes."""
    for test in tests:
        if isinstance(test, type):
            plain = {"setUp": getattr(test, "setup_method", lambda self: None)}
            is_case = issubclass(test, unittest.TestCase)
            case = test if is_case else type("Test", (test, unittest.TestCase), plain)
            test = unittest.defaultTestLoader.loadTestsFromTestCase(case).debug
        test()


def _parse(text: str) -> ast.Module:
    """Code as it runs here: tests are not started by it, and what it imports is there.

    Raises:
        ValueError: it is not Python, or uses a package that the sandbox lacks.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the tests do not compile: {error!r}") from error
    parts: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.If) and "__name__" in _names(node.test):
            parts += node.body
        else:
            parts.append(node)
    starts = "unittest.main(", "pytest.main("
    tree.body = [node for node in parts if not ast.unparse(node).startswith(starts)]
    used = _names(tree) | {"*"}
    tree.body = [node for node in tree.body if not _is_void(node, used)]
    return tree


def _is_void(node: ast.stmt, used: set[str]) -> bool:
    """Whether this imports the program, or what the sandbox lacks and nothing uses."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return False
    module = node.names[0].name if isinstance(node, ast.Import) else node.module or "."
    names = {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    own = isinstance(node, ast.ImportFrom) and not any(alias.asname for alias in node.names)
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    if names & used and not (own and module == "solution"):
        raise ValueError(f"the tests import {module}; the sandbox has Python's library alone")
    return True


def _call_tests(tree: ast.Module, used: set[str]) -> list[ast.stmt]:
    """A call of the test functions, and the classes with test methods, that nothing else uses."""
    found = []
    for node in tree.body:
        parts = node.body if isinstance(node, ast.ClassDef) else [node]
        tests = [n for n in parts if isinstance(n, ast.FunctionDef) and n.name.startswith("test")]
        if tests and (name := getattr(node, "name", "")) not in used:
            found.append(name)
            if tests == [node] and len(tests[0].args.args) > len(tests[0].args.defaults):
                raise ValueError(f"nothing gives {name} of the tests its arguments")
    return ast.parse(f"_run({', '.join(found)})").body if found else []


def _running(node: ast.AST, used: set[str]) -> Iterator[ast.AST]:
    """What is below a node, without functions that nothing calls."""
    for each in ast.iter_child_nodes(node):
        name = each.name if isinstance(each, _FUNCTIONS) else ""
        uncalled = isinstance(each, ast.AsyncFunctionDef) or not name.startswith(_RUN_UNCALLED)
        if not name or name in used or not uncalled:
            yield each
            yield from _running(each, used)


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):  # a tuple, such as (f(1) == 2, "message"), is always true
        always = isinstance(node.test, ast.Constant) and node.test.value
        return not always and not isinstance(node.test, ast.Tuple)
    called = getattr(node, "func", None)
    name = getattr(called, "attr", getattr(called, "id", ""))
    return isinstance(node, ast.Raise) or name.startswith("assert") or name == "fail"


def _defined(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, _FUNCTIONS)}


def _names(tree: ast.AST) -> set[str]:
    """Names and attributes that are used."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
