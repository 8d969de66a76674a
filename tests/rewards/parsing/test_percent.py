r"""Percent signs: the unit of a number, or hundredths, and never a factor nobody asked for."""

from collections.abc import Iterator

import pytest

from mmrl.rewards.math import MathReward
from mmrl.types import Sample


@pytest.fixture(scope="module")
def reward() -> Iterator[MathReward]:
    reward = MathReward()
    yield reward
    reward.verifier.close()


def score(reward: MathReward, answer: str, completion: str) -> float | None:
    return reward([Sample("question", completion, {"answer": answer})])[0]


SAME = (
    [("60", r"60\%"), ("60.0", r"60\%"), ("10", r"10.0\%"), ("60.0", "60%")]
    + [("60", r"60\,\%"), ("60", r"$60\%$"), ("60.0", "60 percent")]
    + [("60.0", r"60\text{ percent}"), ("60", r"60\% \text{ of the students}")]
    + [("1,250", r"1250\%"), ("10, 20", r"10\%, 20\%"), ("12.5", r"12\frac{1}{2}\%")]
    + [(r"60\%", "60"), ("60.0%", "60"), (r"60\%", "60.0%"), (r"60\%", "0.6")]
    + [("60.0%", "0.60"), (r"150\%", "1.5"), (r"60\%", r"\frac{3}{5}")]
    + [(r"\frac{100}{3}\%", r"\frac{1}{3}"), ("0.6", r"60\%"), (r"\frac{3}{5}", r"60.0\%")]
    + [("3/5", "60%"), ("1", r"100\%"), ("-0.2", r"-20\%"), ("0.6", r"0.6\%")]
    + [(r"\frac{1}{3}", r"33\frac{1}{3}\%"), ("100", "100 percent")]
)


@pytest.mark.parametrize(("answer", "written"), SAME)
def test_a_sign_is_the_unit_of_a_number_or_stands_for_hundredths(
    reward: MathReward, answer: str, written: str
) -> None:
    assert score(reward, answer, rf"\boxed{{{written}}}") == 1.0


DIFFERENT = (
    [("60", "0.6"), ("60", r"6000\%"), ("12.5", r"1,250\%"), ("60", r"-60\%"), ("6", r"60\%")]
    + [("0.6", r"6\%"), ("1.5", r"150\%"), (r"60\%", "6"), (r"60\%", "6000")]
    + [(r"60\%", r"0.6\%"), (r"60\%", "0.006"), (r"60\%", r"\%")]
    + [("10", r"10\% \text{ of } 50"), ("15", r"10\%-20\%")]
)


@pytest.mark.parametrize(("answer", "written"), DIFFERENT)
def test_no_sign_turns_another_number_into_the_reference(
    reward: MathReward, answer: str, written: str
) -> None:
    assert score(reward, answer, rf"\boxed{{{written}}}") == 0.0
