"""Reads the tests of a program in the forms that data sets have."""

import json
from typing import Any


def read_tests(tests: Any, entry_point: str, prompt: str) -> tuple[list[Any], str]:
    """The tests of a row, and the function that they call.

    Tests are assertions, `{input: text, output: text}`, or with an entry point `{input:
    [arguments], output: result}`. Rows of APPS, TACO and PRIME have one `{inputs, outputs}` of
    lists, as such or as JSON text, and may name the function in `fn_name`. Where each result is the
    only item of a list there, the item is right as well (`also`). Raises ValueError: they are
    something else."""
    parts = _read(tests)
    names = {
        str(part["fn_name"]) for part in parts if isinstance(part, dict) and part.get("fn_name")
    }
    try:
        [entry_point] = [entry_point] if entry_point else names or [""]
        found = [test for part in parts for test in _split(part, entry_point)]
    except (KeyError, TypeError, ValueError):
        found = []
    kinds = {_kind(test) for test in found}
    if len(kinds) == 1 and kinds <= {"text", "script", "call" if entry_point else "text"}:
        return found, entry_point
    raise ValueError(
        f"tests={str(tests)[:200]!r} of {prompt[:80]!r} must be a list of assertions, "
        "of {input: text, output: text} for a program that reads and prints, or of {input: "
        "[arguments], output: result} together with `entry_point`; or {inputs, outputs} with lists "
        "of these, as such or as JSON text."
    )


def _read(tests: Any) -> list[Any]:
    """The parts of tests; JSON text of an object or of a list is what it contains."""
    if isinstance(tests, str) and tests.lstrip()[:1] in ("{", "["):
        try:
            return _read(json.loads(tests))
        except (ValueError, RecursionError):
            return [tests]
    return (
        [p for each in tests for p in _read(each)] if isinstance(tests, list | tuple) else [tests]
    )


def _split(part: Any, entry_point: str) -> list[Any]:
    """The tests of an object that has all inputs and all outputs; else the part itself."""
    if isinstance(part, dict) and not entry_point and isinstance(part.get("input"), list):
        part = {"inputs": part["input"], "outputs": part["output"]}  # as in CodeContests
    if not isinstance(part, dict) or "inputs" not in part:
        return [part]
    pairs = list(zip(part["inputs"], part["outputs"], strict=True))
    if not entry_point:  # a text may be a list of its lines
        texts = [[t if isinstance(t, str) else "\n".join(t) for t in pair] for pair in pairs]
        return [{"input": given, "output": wanted} for given, wanted in texts]
    if isinstance(pairs[0][0], str):  # JSON, an argument a line
        pairs = [(list(map(json.loads, g.splitlines())), json.loads(wanted)) for g, wanted in pairs]
    alone = all(isinstance(wanted, list) and len(wanted) == 1 for _, wanted in pairs)
    also = [{"also": wanted[0]} if alone else {} for _, wanted in pairs]
    return [{"input": g, "output": w, **more} for (g, w), more in zip(pairs, also, strict=True)]


def _kind(test: Any) -> str:
    """`text`, `script` or `call`; empty for anything else."""
    if isinstance(test, dict):
        given, wanted = test.get("input"), test.get("output")
        is_call = isinstance(given, list) and "output" in test
        return "script" if isinstance(given, str) and isinstance(wanted, str) else "call" * is_call
    return "text" if isinstance(test, str) and test.strip() else ""
