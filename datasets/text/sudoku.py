"""4 x 4 Sudoku with one solution each.

There are 288 filled grids. Renaming the digits makes 24 grids of one, so they fall into 12
families, and whole families are held out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
from splits import deal

CELLS = 16
HELD_OUT = {"test": 2, "validation": 1}
"""Families that do not train."""


@cache
def grids() -> tuple[str, ...]:
    """Every filled grid, as 16 digits row by row."""
    lines = ["".join(line) for line in permutations("1234")]
    return tuple("".join(four) for four in product(lines, repeat=4) if _is_filled(four))


def _is_filled(lines: tuple[str, ...]) -> bool:
    columns = ["".join(column) for column in zip(*lines, strict=True)]
    boxes = [lines[r][c : c + 2] + lines[r + 1][c : c + 2] for r in (0, 2) for c in (0, 2)]
    return all(len(set(group)) == 4 for group in (*columns, *boxes))


def family(solution: str) -> str:
    """The grid with its digits renamed so that its first row is 1234."""
    return solution.translate(str.maketrans(solution[:4], "1234"))


@cache
def split_grids() -> dict[str, tuple[str, ...]]:
    """The grids of every split."""
    families = deal(sorted({family(grid) for grid in grids()}), HELD_OUT)
    return {
        split: tuple(grid for grid in grids() if family(grid) in chosen)
        for split, chosen in families.items()
    }


def problem(rng: random.Random, split: str, empty: int) -> dict[str, Any]:
    """Draw a puzzle with one solution.

    Args:
        rng: source of all randomness.
        split: whose grids are drawn from.
        empty: cells to leave empty, at most 12.

    Returns:
        `puzzle` (0 where empty) and `solution`, 16 digits each.
    """
    while True:
        solution = rng.choice(split_grids()[split])
        gone = set(rng.sample(range(CELLS), empty))
        puzzle = "".join("0" if n in gone else digit for n, digit in enumerate(solution))
        if count_solutions(puzzle) == 1:
            return {"puzzle": puzzle, "solution": solution}


@cache
def _table() -> np.ndarray:
    return np.array([list(map(int, grid)) for grid in grids()])


def count_solutions(puzzle: str) -> int:
    """How many filled grids agree with a puzzle."""
    given = np.array(list(map(int, puzzle)))
    return int(((_table() == given) | (given == 0)).all(1).sum())


def rows(split: str, seed: int, fewest: int = 4, most: int = 10) -> Iterator[dict[str, Any]]:
    """Endless puzzles of a split with their prompt, as many of every number of empty cells."""
    rng = random.Random(f"sudoku {split} {seed}")
    while True:
        for empty in range(fewest, most + 1):
            row = problem(rng, split, empty)
            yield {"prompt": f"solve {row['puzzle']}", **row}


def completion(row: dict[str, Any]) -> str:
    """The filled grid in the tag that the reward reads."""
    return f"<answer>{row['solution']}</answer>"


def careless(row: dict[str, Any], rng: random.Random) -> str:
    """The same with every row filled for itself, whatever the columns and boxes hold."""
    puzzle = row["puzzle"]
    lines = [puzzle[n : n + 4] for n in range(0, CELLS, 4)]
    return completion({"solution": "".join(_filled(line, rng) for line in lines)})


def _filled(line: str, rng: random.Random) -> str:
    missing = [digit for digit in "1234" if digit not in line]
    rng.shuffle(missing)
    return "".join(missing.pop() if cell == "0" else cell for cell in line)
