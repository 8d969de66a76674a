"""LiveCodeBench (arXiv 2403.07974) in its official columns.

`public_test_cases` is a JSON list of `input`, `output` and `testtype`; `private_test_cases` the
same, or its pickled text, compressed by zlib and written in base64. Such a pickle is never loaded:
its instructions are read, and only those of one text are accepted.

Tests of the type `stdin` become programs that read and print, those of the type `functional` calls
of the method `func_name` of a `Solution`, as LeetCode has them.
"""

import base64
import json
import pickletools
import zlib
from binascii import Error as NotBase64
from typing import Any

Row = dict[str, Any]

LONGEST = 2**29
"""Bytes of the private tests of a problem; more are refused."""
STARTED = "Complete this starter code, and put the whole program in a Python code block:\n"
PROGRAM = (
    "Read the input by input() and print the output. Put the whole program in a Python code block."
)
"""Forms of a program, by whether there is starter code."""
_MODULES = "string re datetime collections heapq bisect copy math random statistics itertools"
_MODULES += " functools operator io sys json"
SETUP = "\n".join(
    [
        *(f"from {module} import *" for module in (*_MODULES.split(), "builtins", "typing")),
        *(f"import {module}" for module in _MODULES.split()),
        "sys.setrecursionlimit(50000)",
    ]
)
"""What the official harness puts before a program."""
_ONE_TEXT = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"}
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}


def livecodebench(row: Row) -> Row:
    """A row of livecodebench/code_generation_lite; `hint` asks for the form of the program."""
    cases = [
        case
        for key in ("public_test_cases", "private_test_cases")
        for case in _read_cases(key, row[key])
    ]
    kinds = {case.get("testtype") for case in cases}
    if len(kinds) != 1 or not kinds <= {"stdin", "functional"}:
        raise ValueError(f"the tests have the types {sorted(map(str, kinds))}; one is needed")
    starter = row.get("starter_code") or ""
    return {
        "id": row["question_id"],
        "prompt": row["question_content"],
        "hint": f"{STARTED}```python\n{starter}\n```" if starter else PROGRAM,
        **{key: row[key] for key in ("platform", "difficulty", "contest_date") if key in row},
        "setup": SETUP,
        **(_calls(row, cases) if kinds == {"functional"} else _programs(cases)),
    }


def _programs(cases: list[Row]) -> Row:
    return {"tests": [{"input": case["input"], "output": case["output"]} for case in cases]}


def _calls(row: Row, cases: list[Row]) -> Row:
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
    method = f"Solution.{name}" if "class Solution" in (row.get("starter_code") or "") else name
    return {"tests": tests, "entry_point": method}


def _read_cases(key: str, value: Any) -> list[Row]:
    text = value if isinstance(value, str) else json.dumps(value)
    if not text.lstrip().startswith("["):
        try:
            text = _read_pickled_text(_decompress(base64.b64decode(text, validate=True)))
        except (NotBase64, zlib.error, ValueError) as error:
            raise ValueError(
                f"{key} is neither JSON nor a text that was pickled, compressed and written in"
                f" base64 ({error})"
            ) from error
    cases = _parse(key, text)
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise ValueError(f"{key} is no list of tests")
    return cases


def _decompress(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(data, LONGEST)
    if not stream.eof:
        raise ValueError(f"more than {LONGEST:,} bytes, or damaged")
    return found


def _read_pickled_text(data: bytes) -> str:
    """The text that is all of a pickle; no instruction of it is run.

    Raises:
        ValueError: it holds anything else.
    """
    texts: list[str] = []
    for instruction, argument, _ in pickletools.genops(data):
        if instruction.name in _TEXTS:
            texts.append(str(argument))
        elif instruction.name not in _ONE_TEXT:
            raise ValueError(f"the pickle has the instruction {instruction.name}")
    if len(texts) != 1:
        raise ValueError(f"the pickle holds {len(texts)} texts")
    return texts[0]


def _parse(key: str, text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{key} is no JSON ({error}): {str(text)[:80]!r}") from error
