"""LiveCodeBench (arXiv 2403.07974) in the rows of livecodebench/code_generation_lite.

`public_test_cases` is a JSON list of `input`, `output` and `testtype`; `private_test_cases` the
same, or its text pickled, compressed by zlib and written in base64. Tests of the type `stdin` are
programs that read and print; those of the type `functional` call the method `func_name` of a
`Solution`, one argument per line.
"""

import base64
import json
import zlib
from typing import Any

from mmrl.data.questions import Row
from mmrl.rewards.http.protocols.plain_pickle import read_pickle

LONGEST = 2**28
"""Bytes of the private tests of a problem; more are refused."""
STARTED = "Complete this starter code, and put the whole program in a Python code block:"
PROGRAM = (
    "Read the input by input() and print the output. Put the whole program in a Python code block."
)
"""Forms of a program, by whether there is starter code."""
_MODULES = "bisect collections copy datetime functools heapq io itertools json math operator random"
_MODULES += " re statistics string sys"
SETUP = "\n".join(
    [
        *(f"from {module} import *" for module in (*_MODULES.split(), "builtins", "typing")),
        f"import {', '.join(_MODULES.split())}",
        "sys.setrecursionlimit(50000)",
    ]
)
"""What programs may use without importing it, as in the official harness."""


def livecodebench(row: Row) -> Row:
    """A row becomes the columns of the reward `code`; `hint` asks for the form of the program."""
    names = ("public_test_cases", "private_test_cases")
    cases = [case for name in names for case in _read_cases(name, row[name])]
    kinds = {case.get("testtype") for case in cases}
    if len(kinds) != 1 or not kinds <= {"stdin", "functional"}:
        raise ValueError(f"the tests have the types {sorted(map(str, kinds))}; one is needed")
    starter = row.get("starter_code") or ""
    return {
        "id": row["question_id"],
        "prompt": row["question_content"],
        "hint": f"{STARTED}\n```python\n{starter}\n```" if starter else PROGRAM,
        **{key: row[key] for key in ("platform", "difficulty", "contest_date") if key in row},
        "setup": SETUP,
        **_tests(row, cases, kinds == {"functional"}),
    }


def _tests(row: Row, cases: list[Row], called: bool) -> Row:
    if not called:
        return {"tests": [{key: case[key] for key in ("input", "output")} for case in cases]}
    about = _parse("metadata", row["metadata"])
    name = about.get("func_name") if isinstance(about, dict) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"metadata is {row['metadata']!r:.200}, and tests need its func_name")
    tests = [
        {
            "input": [_parse("input", line) for line in case["input"].split("\n")],
            "output": _parse("output", case["output"]),
        }
        for case in cases
    ]
    return {"tests": tests, "entry_point": f"Solution.{name}"}


def _read_cases(name: str, text: str) -> list[Row]:
    cases = _parse(name, text if text.lstrip().startswith("[") else _unpack(name, text))
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise ValueError(f"{name} is no list of tests")
    return cases


def _unpack(name: str, text: str) -> str:
    """The text in a compressed pickle, in which nothing is run."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(base64.b64decode(text, validate=True), LONGEST)
        if not stream.eof:
            raise ValueError(f"more than {LONGEST:,} bytes, or damaged")
        value = read_pickle(found, LONGEST)
    except (zlib.error, ValueError) as error:
        raise ValueError(f"{name} is neither JSON nor a compressed pickle ({error})") from error
    if not isinstance(value, str):
        raise ValueError(f"{name} is the pickle of a {type(value).__name__}, not of a text")
    return value


def _parse(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON ({error}): {text[:80]!r}") from error
