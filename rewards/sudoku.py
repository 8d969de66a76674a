"""The Sudoku reward: the share of empty cells that were filled right.

d1's scoring (Zhao et al., 2025, arXiv:2504.12216): the digits in the last `<answer>…</answer>` are
read as the grid row by row, filled up with zeros or cut to its size, and compared with the solution
where the puzzle was empty. Grids of any size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mmrl.rewards.parsing.extraction import find_tagged
from mmrl.rewards.parsing.metadata import read_sample, read_values
from mmrl.types import Sample


@dataclass(kw_only=True, eq=False)
class SudokuReward:
    """Score grids against the metadata `puzzle` (0 where empty) and `solution`."""

    needs: ClassVar[tuple[str, ...]] = ("completion", "metadata")

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None without `puzzle` and `solution`, and for a puzzle without an empty
        cell."""
        return [_score(sample) for sample in samples]

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where puzzle and solution do not belong together."""
        found = read_values(metadata, "sudoku", "puzzle", "solution")
        if found is not None:
            _digits(*found)


def _score(sample: Sample) -> float | None:
    content = read_sample(sample, "sudoku", "puzzle", "solution")
    if content is None:
        return None
    completion, (puzzle, solution) = content
    puzzle, solution = _digits(puzzle, solution)
    right, empty = count_filled(find_tagged(completion) or "", puzzle, solution)
    return right / empty if empty else None


def _digits(puzzle: Any, solution: Any) -> tuple[str, str]:
    puzzle, solution = str(puzzle), str(solution)
    if len(puzzle) != len(solution) or not (puzzle + solution).isdecimal():
        raise ValueError(
            f"puzzle={puzzle!r} and solution={solution!r} must be digits of the same number, row "
            "by row, with 0 for an empty cell; keep leading zeros by giving them as text."
        )
    return puzzle, solution


def count_filled(answer: str, puzzle: str, solution: str) -> tuple[int, int]:
    """How many empty cells of the puzzle an answer fills right, and how many there are."""
    digits = "".join(character for character in answer if character in "0123456789")
    cells = digits.ljust(len(puzzle), "0")
    empty = [n for n, digit in enumerate(puzzle) if digit == "0"]
    return sum(cells[n] == solution[n] for n in empty), len(empty)
