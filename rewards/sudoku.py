"""The Sudoku reward: the share of empty cells that were filled right.

d1's scoring (Zhao et al., 2025, arXiv:2504.12216): the digits in the last `<answer>…</answer>` are
read as the grid row by row, filled up with zeros or cut to its size, and compared with the solution
where the puzzle was empty. Grids of any size.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from mmrl.rewards.parsing.extraction import find_tagged
from mmrl.rewards.parsing.metadata import TextReward


@dataclass(kw_only=True, eq=False)
class SudokuReward(TextReward):
    """Score grids against the metadata `puzzle` (0 where empty) and `solution`."""

    where: ClassVar[str] = "sudoku"
    keys: ClassVar[tuple[str, ...]] = ("puzzle", "solution")

    def read(self, *values: Any) -> tuple[str, str]:
        puzzle, solution = map(str, values)
        if len(puzzle) != len(solution) or not (puzzle + solution).isdecimal():
            raise ValueError(
                f"puzzle={puzzle!r} and solution={solution!r} must be digits of the same number,"
                " row by row, with 0 for an empty cell; keep leading zeros by giving them as text."
            )
        return puzzle, solution

    def score(self, completion: str, reference: tuple[str, str]) -> float | None:
        """In [0, 1]; None for a puzzle without an empty cell."""
        puzzle, solution = reference
        digits = [each for each in find_tagged(completion) or "" if each in "0123456789"]
        cells = "".join(digits).ljust(len(puzzle), "0")
        empty = [n for n, digit in enumerate(puzzle) if digit == "0"]
        return sum(cells[n] == solution[n] for n in empty) / len(empty) if empty else None
