"""Countdown by d1's rule without eval, and Sudoku by its share of empty cells filled right."""

import re
import time

import pytest

from mmrl.rewards import build_reward
from mmrl.rewards.countdown import CountdownReward
from mmrl.types import Sample


def score(
    completion: str, numbers: list | None = None, target: int = 51, **options: float
) -> float:
    metadata = {"numbers": numbers or [49, 55, 53], "target": target}
    result = build_reward({"name": "countdown", **options})([Sample("q", completion, metadata)])[0]
    assert result is not None
    return result


@pytest.mark.parametrize(
    "completion",
    ["<answer>49 + 55 - 53</answer>", r"<answer> \boxed{49 + 55 - 53} </answer>"]
    + [r"\boxed{49 + 55 - 53 = 51}", "<answer>(49-53)+55</answer>"]
    + ["<answer>\\(49 + 55 − 53\\)</answer>", "<answer>-(53 - 49) + 55</answer>"]
    + ["<answer>49 + 55 - 53\n= 51</answer>"],
)
def test_an_expression_that_reaches_the_target_is_right(completion: str) -> None:
    assert score(completion) == 1.0


@pytest.mark.parametrize(
    ("completion", "numbers", "target"),
    [
        (r"\boxed{92 \div (1 + 1)}", [92, 1, 1], 46),
        (r"\boxed{\frac{92}{1 + 1}}", [92, 1, 1], 46),
        (r"\boxed{\left(92 \times 1\right) \div 2}", [92, 1, 2], 46),
        ("<answer>1/3*3</answer>", [1, 3, 3], 1),
        ("<answer>92/(1+1)</answer>", ["92", "1", "1"], "46"),
    ],
)
def test_latex_operators_and_fractions_are_exact(
    completion: str, numbers: list, target: int
) -> None:
    assert score(completion, numbers, target) == 1.0


@pytest.mark.parametrize(
    "written",
    ["49 + 55", "49 + 55 - 53 + 49 - 49", "51", "49 - 55 - 53", "49 + 55 - 53 = 50 + 1 + 49"]
    + ["49 + 55 // 53", "49 ** 55 - 53", "49/(55-55)-53", "4.9+55-53", "0x31 + 55 - 53"]
    + ["__import__('os').system('touch broken')", "(" * 5000 + "49" + ")" * 5000]
    + ["(" * 149 + "49" + ")" * 149, "9" * 5000, "49 + 55 - 53 +", ""],
)
def test_anything_else_is_wrong_and_nothing_is_executed(written: str) -> None:
    start = time.monotonic()
    assert score(f"<answer>{written}</answer>") == 0.0
    assert time.monotonic() - start < 1


@pytest.mark.parametrize(
    ("written", "numbers", "target", "right"),
    [("9 + (-4) - 2", [-4, 9, 2], 3, 1.0), ("9 + (−4) − 2 = 3", [-4, 9, 2], 3, 1.0)]
    + [("9 - -4", [-4, 9], 13, 1.0), ("-4 + 4", [4, -4], 0, 1.0)]
    + [("-(53 - 49) + 55", [49, 55, 53], 51, 1.0), ("9 - 4 - 2", [-4, 9, 2], 3, 0.0)]
    + [("9 + 4", [-4, 9], 13, 0.0)],
)
def test_a_negative_number_is_used_with_its_sign(
    written: str, numbers: list, target: int, right: float
) -> None:
    assert score(f"<answer>{written}</answer>", numbers, target) == right


def test_partial_credit_is_for_a_wrong_expression_only() -> None:
    assert score("<answer>49 + 55</answer>", partial=0.1) == 0.1
    assert score("<answer>49 + 55 - 53</answer>", partial=0.1) == 1.0
    assert score("I would say 49 + 55 - 53", partial=0.1) == 0.0
    assert score("<answer>49 + 55 - 53", partial=0.1) == 0.0
    assert score("", partial=0.1) == 0.0


def test_metadata_is_there_or_not_but_not_half_or_wrong() -> None:
    reward = build_reward({"name": "countdown"})
    assert reward([Sample("q", "x")]) == [None]
    with pytest.raises(ValueError, match="has no target"):
        reward([Sample("q", "x", {"numbers": [1]})])
    with pytest.raises(ValueError, match="whole numbers"):
        reward([Sample("q", "x", {"numbers": "1,a", "target": 3})])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"numbers": [3.7, 2]}, "numbers[0] is 3.7; it must be a whole number, such as 3, 3.0"),
        ({"numbers": [3, "2.5"]}, "numbers[1] is '2.5'; it must be a whole number"),
        ({"numbers": [3, True]}, "numbers[1] is True; it must be a whole number"),
        ({"numbers": [3, float("nan")]}, "numbers[1] is nan; it must be a whole number"),
        ({"numbers": [[3], 2]}, "numbers[0] is [3]; it must be a whole number"),
        ({"numbers": "32"}, "numbers is '32'; it must be a list of whole numbers"),
        ({"target": 5.5}, "target is 5.5; it must be a whole number"),
        ({"target": "1_0"}, "target is '1_0'; it must be a whole number"),
    ],
)
def test_what_is_no_whole_number_is_refused_and_never_rounded(wrong: dict, said: str) -> None:
    reward = build_reward({"name": "countdown"})
    assert isinstance(reward, CountdownReward)
    metadata = {"numbers": [3, 2], "target": 5, **wrong}
    for refused in (reward.check, lambda m: reward([Sample("q", "\\boxed{3+2}", m)])):
        with pytest.raises(ValueError, match=re.escape(said)):
            refused(metadata)


PUZZLE, SOLUTION = "4320004330100004", "4321124334122134"


def score_cells(answer: str, puzzle: str = PUZZLE, solution: str = SOLUTION) -> float | None:
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
    assert score_cells(answer) == pytest.approx(expected)


def test_a_malformed_puzzle_is_a_failure() -> None:
    with pytest.raises(ValueError, match="has no solution"):
        build_reward({"name": "sudoku"})([Sample("q", "x", {"puzzle": PUZZLE})])
    with pytest.raises(ValueError, match="leading zeros"):
        score_cells("x", PUZZLE[1:])
    with pytest.raises(ValueError, match="digits"):
        score_cells("x", PUZZLE.replace("0", "."))
