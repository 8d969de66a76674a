"""Arithmetic: sums, differences and products of two or three numbers, * before + and -.

No step leaves the whole numbers from 0 on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from splits import split_of


def key_of(row: dict[str, Any]) -> str:
    """What an expression adds up, in any order: 3*4+5 and 5+4*3 are one problem."""
    terms = re.findall(r"[+-][\d*]+", "+" + row["expression"])
    products = (term[0] + "*".join(sorted(term[1:].split("*"))) for term in terms)
    return f"arithmetic {sorted(products)}"


def problem(rng: random.Random, largest: int = 99, largest_factor: int = 12) -> dict[str, Any]:
    """Draw an expression whose steps all stay at 0 or above.

    Args:
        rng: source of all randomness.
        largest: upper end of the numbers that are added; they start at 1.
        largest_factor: upper end of those that are multiplied.

    Returns:
        `expression` without spaces, and `answer`.
    """
    while True:
        operators = [rng.choice("+-*") for _ in range(rng.choice((1, 2)))]
        text = ""
        for before, after in pairwise(["", *operators, ""]):
            number = rng.randint(1, largest_factor if "*" in (before, after) else largest)
            text += f"{before}{number}"
        value = work(text)[1]
        if value >= 0:
            return {"expression": text, "answer": value}


def work(expression: str) -> tuple[list[str], int]:
    """The steps of an expression, such as `7*3=21`, and its value.

    They end at the first step below 0, whose value is returned then.
    """
    steps, text = [], expression
    for pattern in (r"\d+\*\d+", r"\d+[+-]\d+"):
        while found := re.search(pattern, text):
            value = _value(found.group())
            steps.append(f"{found.group()}={value}")
            if value < 0:
                return steps, value
            text = text[: found.start()] + str(value) + text[found.end() :]
    return steps, int(text)


def _value(step: str) -> int:
    a, operator, b = re.split(r"([+*-])", step)
    return {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[operator]


def rows(
    split: str, seed: int, largest: int = 99, largest_factor: int = 12
) -> Iterator[dict[str, Any]]:
    """Endless expressions of a split with their prompt; see `problem`."""
    rng = random.Random(f"arithmetic {split} {seed}")
    while True:
        row = problem(rng, largest, largest_factor)
        if split_of(key_of(row)) == split:
            yield {"prompt": f"compute {row['expression']}", **row}


def completion(row: dict[str, Any]) -> str:
    """The steps and the value, in the tags that the rewards read."""
    return _written(work(row["expression"])[0])


def steps(row: dict[str, Any]) -> str:
    """The steps alone; a reward reads the last number."""
    return "\n".join(work(row["expression"])[0])


def careless_steps(row: dict[str, Any], rng: random.Random) -> str:
    """The first step alone."""
    return work(row["expression"])[0][0]


def careless(row: dict[str, Any], rng: random.Random) -> str:
    """The same, but stopped after the first step."""
    return _written(work(row["expression"])[0][:1])


def _written(steps: list[str]) -> str:
    text, answer = "\n".join(steps), steps[-1].partition("=")[2]
    return f"<reasoning>{text}</reasoning><answer>{answer}</answer>"
