"""Countdown: reach a target with some numbers, each used exactly once, and + - * /.

A problem is drawn as numbers and one of the targets they reach, so all problems are solvable. As
in the television game, no step may leave the whole numbers from 0 on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

from splits import split_of

_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}


class Term(NamedTuple):
    """A number reached so far: how it is written, and how strongly its last operator binds."""

    value: int
    text: str
    strength: int = 3


class Solution(NamedTuple):
    """An expression, and the steps to it such as `49+55=104`."""

    expression: str
    steps: tuple[str, ...]


def key_of(row: dict[str, Any]) -> str:
    """The numbers in any order: no numbers of a held-out problem are trained on, for any target."""
    return f"countdown {sorted(row['numbers'])}"


def problem(rng: random.Random, numbers: int = 3, largest: int = 100) -> dict[str, Any]:
    """Draw a solvable problem.

    Args:
        rng: source of all randomness.
        numbers: how many.
        largest: upper end of the numbers and of the target; both start at 1.

    Returns:
        `numbers` and `target`.
    """
    while True:
        drawn = tuple(rng.randint(1, largest) for _ in range(numbers))
        targets = sorted(value for value in solutions(drawn) if 1 <= value <= largest)
        if targets:
            return {"numbers": list(drawn), "target": rng.choice(targets)}


def rows(split: str, seed: int, numbers: int = 3, largest: int = 100) -> Iterator[dict[str, Any]]:
    """Endless problems of a split with their prompt; see `problem`."""
    rng = random.Random(f"countdown {split} {seed}")
    while True:
        row = problem(rng, numbers, largest)
        if split_of(key_of(row)) == split:
            listed = ", ".join(map(str, row["numbers"]))
            yield {"prompt": f"make {row['target']} from {listed}", **row}


def completion(row: dict[str, Any]) -> str:
    """The steps of a solution and its expression, in the tags that the rewards read."""
    return _written_out(solutions(tuple(row["numbers"]))[row["target"]])


def careless(row: dict[str, Any], rng: random.Random) -> str:
    """The same for any number up to 100 that can be reached, whatever the target is."""
    found = solutions(tuple(row["numbers"]))
    return _written_out(found[rng.choice(sorted(value for value in found if 1 <= value <= 100))])


def _written_out(found: Solution) -> str:
    steps = "\n".join(found.steps)
    return f"<reasoning>{steps}</reasoning><answer>{found.expression}</answer>"


@lru_cache(maxsize=64)
def solutions(numbers: tuple[int, ...]) -> dict[int, Solution]:
    """Every number that can be reached, with the first solution found: sums are tried first."""
    found: dict[int, Solution] = {}
    for value, solution in _search([Term(n, str(n)) for n in numbers], ()):
        found.setdefault(value, solution)
    return found


def _search(terms: list[Term], steps: tuple[str, ...]) -> Iterator[tuple[int, Solution]]:
    if len(terms) == 1:
        yield terms[0].value, Solution(terms[0].text, steps)
        return
    for i, j in combinations(range(len(terms)), 2):
        rest = [term for n, term in enumerate(terms) if n not in (i, j)]
        for operator, left, right, value in _results(terms[i], terms[j]):
            step = f"{left.value}{operator}{right.value}={value}"
            term = Term(value, _written(operator, left, right), _STRENGTH[operator])
            yield from _search([term, *rest], (*steps, step))


def _results(a: Term, b: Term) -> Iterator[tuple[str, Term, Term, int]]:
    large, small = (a, b) if a.value >= b.value else (b, a)
    yield "+", a, b, a.value + b.value
    yield "-", large, small, large.value - small.value
    yield "*", a, b, a.value * b.value
    if small.value and large.value % small.value == 0:
        yield "/", large, small, large.value // small.value


def _written(operator: str, left: Term, right: Term) -> str:
    strength = _STRENGTH[operator]
    first = f"({left.text})" if left.strength < strength else left.text
    tight = right.strength > strength or (right.strength == strength and operator in "+*")
    return f"{first}{operator}{right.text if tight else f'({right.text})'}"
