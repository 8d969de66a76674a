"""Where an answer is read from, and what is no answer."""

from collections.abc import Callable
from functools import partial
from time import process_time
from timeit import timeit

import pytest

from mmrl.rewards.countdown import solves
from mmrl.rewards.format import matches
from mmrl.rewards.parsing.choices import find_choice, read_choices
from mmrl.rewards.parsing.extraction import (
    extract,
    find_boxed,
    find_hashed,
    find_stated,
    find_tagged,
    last_number,
)
from mmrl.rewards.parsing.number import find_number, read_number, without_unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [(r"so \boxed{18}.", "18"), (r"\boxed{1} then \boxed{2}", "2")]
    + [(r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"), (r"\boxed{\{1, 2\}}", r"\{1, 2\}")]
    + [("\\boxed {\n 7 \n}", "7"), (r"\frame{5} \boxed{6", None)]
    + [(r"\boxed{5} and then \boxed{6", None), (r"\boxed{a \boxed{5} b}", "5")]
    + [(r"} { \boxed{5} }{", "5"), (r"\boxed{360\text{ hours} hours.", None), ("", None)],
)
def test_the_box_that_was_opened_last_counts(text: str, expected: str | None) -> None:
    assert find_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("<answer> 5 </answer>", "5"), ("<answer>5</answer> <answer>\n6\n</answer>", "6")]
    + [("<answer>5</answer> <answer>6", None), ("<answer>5 <answer>6</answer>", "6")]
    + [("5</answer>", None), ("<answer>5", None)],
)
def test_the_tag_that_was_opened_last_counts(text: str, expected: str | None) -> None:
    assert find_tagged(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("in all 1,234,567.", "1,234,567"), ("10-3 = 7", "7"), ("it is -3.5 degrees", "-3.5")]
    + [("the range 4-9", "9"), ("set 1,23", "23"), ("none", None), (r"\boxed{} so 50", "50")]
    + [("The result is −12.", "-12"), ("from 4–9", "9"), ("The probability is 3/4.", "3/4")]
    + [(r"It is $-\frac{3}{4}$.", "-3/4"), (r"so 2\sqrt{3}", r"2\sqrt{3}"), ("so $3x$", "3x")]
    + [("It is 2^10.", "2^10"), ("that is 6.6 × 10⁻³⁴", r"6.6 \times  10^{-34}")]
    + [("an area of 12 cm^2", "12"), ("it is 5 million.", "5 million")]
    + [("Answer: 25. That leaves 3", "25"), ("**Final answer:** 25\n7 are left", "25")]
    + [("## Final Answer\n\n25\n\nand 3 more", "25")]
    + [("The answer is 25 because 3 + 4 = 7", "25"), ("The answer is not 5. It is 6.", "6")],
)
def test_the_last_number_of_what_is_stated_or_all_is_read(text: str, expected: str | None) -> None:
    assert last_number(text) == expected


@pytest.mark.parametrize(
    "text",
    [r"I get 12, so \boxed{12", "I get 12, so <answer>12", r"So \boxed{5}. Wait, so \boxed{7"]
    + [r"\boxed{5} <answer>6", "#### 5\n<answer>6", r"<answer>5</answer> or \boxed{6"],
)
def test_nothing_is_the_answer_of_a_text_that_was_cut_off_in_one(text: str) -> None:
    assert extract(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#### Step 1 a\n#### Step 2\nThe sum is 25.", ("number", "25")),
        ("#### Final Answer\n25", ("hash", "25")),
        ("#### **Final Answer**\n\n**25**", ("hash", "25")),
        ("#### Answer: 25", ("hash", "25")),
        ("#### The answer is 25\nmore", ("hash", "25")),
        ("#### 1. Compute\nwe get 5", ("number", "5")),
        ("#### 25\n#### Explanation\nwe add 3", ("hash", "25")),
        ("#### 18 dollars\nmore", ("hash", "18 dollars")),
        ("it is\n#### Monday", ("hash", "Monday")),
        ("#### **73**", ("hash", "73")),
        ("<answer>**73**</answer>", ("answer", "73")),
        ("<answer>__73__</answer>", ("answer", "73")),
        ("<answer>2*3*4</answer>", ("answer", "2*3*4")),
        (r"<answer>\boxed{5</answer>", ("answer", r"\boxed{5")),
        (r"<answer> \boxed{18}", ("boxed", "18")),
    ],
)
def test_headings_and_emphasis_are_told_from_answers(text: str, expected: tuple[str, str]) -> None:
    assert extract(text) == expected


def test_sources_are_tried_in_order_and_empty_ones_pass_on() -> None:
    text = r"\boxed{} <answer>2</answer> #### 3"
    assert extract(text) == ("answer", "2")
    assert extract(text, ("hash", "answer")) == ("hash", "3")
    assert extract(text, ("boxed",)) is None
    assert extract("") is None


READERS: dict[str, Callable[[str], object]] = (
    {"extract": extract, "boxed": find_boxed, "hashed": find_hashed, "stated": find_stated}
    | {"last number": last_number, "number": read_number, "one number": find_number}
    | {"unit": without_unit, "choice": lambda text: find_choice(text, ["dog", "cat"])}
    | {"choices": read_choices, "countdown": lambda text: solves(text, [1, 2], 3)}
    | {"soft format": lambda text: matches(f"<a>{text}", ["a", "b"], False, False)}
)
REPEATED = (
    "\\boxed{ { } <answer> #### answer \n 5 1, - $ \\frac{ \\text{ ^{ ( A. * ½ √( </a><b> # = 1/"
    " 5_million_ answer_is_ so_A 1_ \\text{a} or_two_ The_answer_is_B._ #_answer"
)


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_takes_time_in_proportion_to_the_text(reader: str) -> None:
    """A quadratic pattern takes seconds here, and the old search for boxes minutes."""
    for part in [" ", "\n", *(part.replace("_", " ") for part in REPEATED.split(" "))]:
        text = part * (20_000 // len(part)) + "x"
        # without the garbage of other tests, which timeit leaves where it is
        assert timeit(partial(READERS[reader], text), timer=process_time, number=1) < 1.5, part
