"""The Sudoku reward: d1's share of empty cells filled right."""

import pytest

from mmrl.rewards import build_reward
from mmrl.types import Sample

PUZZLE, SOLUTION = "4320004330100004", "4321124334122134"


def score(answer: str, puzzle: str = PUZZLE, solution: str = SOLUTION) -> float | None:
    metadata = {"puzzle": puzzle, "solution": solution}
    return build_reward({"name": "sudoku"})([Sample("q", answer, metadata)])[0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (f"<answer>\n{SOLUTION}\n</answer>", 1.0),
        ("<answer>4321\n1243\n3412\n2134</answer>", 1.0),
        ("<answer>4 3 2 1 | 1 2 4 3 | 3 4 1 2 | 2 1 3 4</answer>", 1.0),
        ("<answer>4320004330120004</answer>", 1 / 8),  # a recorded generation
        ("<answer>432112433412</answer>", 5 / 8),  # truncated: the missing cells count as wrong
        (f"<answer>{SOLUTION}99</answer>", 1.0),
        (f"<answer>{PUZZLE}</answer><answer>{SOLUTION}</answer>", 1.0),
        (f"<answer>{PUZZLE}</answer>", 0.0),
        (f"<answer>{SOLUTION}", 0.0),
        (SOLUTION, 0.0),
        ("<answer></answer>", 0.0),
        ("<answer>no ²³ idea</answer>", 0.0),
        ("", 0.0),
    ],
)
def test_the_score_is_the_share_of_empty_cells_filled_right(answer: str, expected: float) -> None:
    assert score(answer) == pytest.approx(expected)


def test_a_malformed_puzzle_is_a_failure() -> None:
    with pytest.raises(ValueError, match="has no solution"):
        build_reward({"name": "sudoku"})([Sample("q", "x", {"puzzle": PUZZLE})])
    with pytest.raises(ValueError, match="leading zeros"):
        score("x", PUZZLE[1:])
    with pytest.raises(ValueError, match="digits"):
        score("x", PUZZLE.replace("0", "."))
