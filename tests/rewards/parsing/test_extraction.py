"""Where an answer is read from, and what is no answer."""

import pytest

from mmrl.rewards.parsing.extraction import (
    extract,
    find_boxed,
    find_hashed,
    find_tagged,
    last_number,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{18}.", "18"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("\\boxed {\n 7 \n}", "7"),
        (r"\frame{5} \boxed{6", None),
        (r"\boxed{5} and then \boxed{6", "5"),
        (r"\boxed{360\text{ hours} hours.", None),
        ("", None),
    ],
)
def test_the_last_closed_box_counts(text: str, expected: str | None) -> None:
    assert find_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> 5 </answer>", "5"),
        ("<answer>5</answer> <answer>\n6\n</answer>", "6"),
        ("<answer>5</answer> <answer>6", "5"),
        ("<answer>5 <answer>6</answer>", "6"),
        ("5</answer>", None),
        ("<answer>5", None),
    ],
)
def test_the_last_closed_tag_counts(text: str, expected: str | None) -> None:
    assert find_tagged(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in all 1,234,567.", "1,234,567"),
        ("10-3 = 7", "7"),
        ("it is -3.5 degrees", "-3.5"),
        ("the range 4-9", "9"),
        ("set 1,23", "23"),
        ("none", None),
        (r"I get 12, so \boxed{12", None),
        ("I get 12, so <answer>12", None),
        (r"\boxed{} so 50", "50"),
    ],
)
def test_the_last_number_is_read_unless_an_answer_was_cut_off(
    text: str, expected: str | None
) -> None:
    assert last_number(text) == expected


def test_gsm8k_answers_follow_four_hashes() -> None:
    assert find_hashed("She has 3+4.\n#### 7\nmore") == "7"
    assert find_hashed("no mark") is None


def test_sources_are_tried_in_order_and_empty_ones_pass_on() -> None:
    text = r"\boxed{} <answer>2</answer> #### 3"
    assert extract(text) == ("answer", "2")
    assert extract(text, ("hash", "answer")) == ("hash", "3")
    assert extract(text, ("boxed",)) is None
    assert extract("") is None


def test_a_completion_full_of_open_boxes_is_read_in_time() -> None:
    assert extract("\\boxed{" * 600) is None
