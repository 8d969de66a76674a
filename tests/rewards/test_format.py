"""The format reward: tags soft and strict, boxes."""

import re
from typing import Any

import pytest

from mmrl.rewards import build_reward
from mmrl.types import Sample

STRICT = "<reasoning>\nfirst\n\nthen\n</reasoning>\n<answer>\n5\n</answer>\n"
SOFT = "  <reasoning>first\nthen</reasoning>  <answer>5</answer> and so on"


def score(completion: str, **options: Any) -> float | None:
    return build_reward({"name": "format", **options})([Sample("q", completion)])[0]


@pytest.mark.parametrize(
    ("completion", "soft", "strict"),
    [(STRICT, 1.0, 1.0), (STRICT.rstrip(), 1.0, 1.0), (SOFT, 1.0, 0.0)]
    + [(STRICT + "more", 1.0, 0.0), ("so: " + STRICT, 0.0, 0.0)]
    + [(STRICT.replace("</reasoning>\n", "</reasoning>\nso\n"), 0.0, 0.0)]
    + [(STRICT.replace("\n5\n", "\n \n"), 0.0, 0.0), (STRICT + STRICT, 0.0, 0.0)]
    + [("<answer>\n5\n</answer>\n<reasoning>\nfirst\n</reasoning>\n", 0.0, 0.0)]
    + [(STRICT.replace("</answer>", ""), 0.0, 0.0)]
    + [("<reasoning></reasoning><answer></answer>", 0.0, 0.0), ("", 0.0, 0.0)],
)
def test_tags_stand_once_filled_and_in_order(completion: str, soft: float, strict: float) -> None:
    assert score(completion) == soft
    assert score(completion, mode="strict") == strict


@pytest.mark.parametrize(
    ("completion", "expected"),
    [(r"so \boxed{5}", 1.0), (r"\boxed{ }", 0.0), (r"\boxed{5", 0.0), ("boxed{5}", 0.0)],
)
def test_a_box_is_closed_and_filled(completion: str, expected: float) -> None:
    assert score(completion, mode="boxed") == expected


ONE_LINE = "<reasoning>\nfirst\n</reasoning>\n<answer>\n5\n</answer>\n"
EMPTY = "<reasoning></reasoning><answer></answer>"


@pytest.mark.parametrize(
    ("completion", "soft", "strict"),
    [
        (ONE_LINE, (1, 0), (1, 1)),
        (ONE_LINE + "\n", (1, 0), (1, 1)),
        (ONE_LINE.rstrip(), (1, 0), (0, 0)),
        (STRICT, (1, 0), (1, 0)),  # reasoning of three lines
        (EMPTY, (1, 1), (0, 0)),
        (EMPTY + EMPTY, (1, 1), (0, 0)),
        (ONE_LINE + "more", (1, 0), (0, 0)),
        (ONE_LINE + ONE_LINE, (1, 0), (1, 0)),
        ("so: " + ONE_LINE, (0, 0), (0, 0)),
        ("<reasoning>a</reasoning>\n\n  <answer>b</answer>", (1, 1), (0, 0)),
        ("<reasoning>a</reasoning> so <answer>b</answer>", (0, 0), (0, 0)),
        ("<reasoning>a</reasoning><answer>b", (0, 0), (0, 0)),
    ],
)
def test_d1s_expressions_may_span_lines_or_not_as_its_runs_had_them(
    completion: str, soft: tuple[int, int], strict: tuple[int, int]
) -> None:
    for mode, expected in (("soft", soft), ("strict", strict)):
        found = [
            score(completion, rule="d1", mode=mode, multiline=lines) for lines in (True, False)
        ]
        assert tuple(found) == expected
        pattern = {
            "soft": r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>",
            "strict": r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$",
        }[mode]
        flags = (re.DOTALL, 0)
        assert [float(bool(re.match(pattern, completion, flag))) for flag in flags] == found


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (ONE_LINE, 0.5),  # four tags, nothing behind the last
        (ONE_LINE + "more", 0.5 - 0.004 - 0.004),  # both counts of what follows
        (ONE_LINE.rstrip(), 0.5 - 0.001 * 51 + 0.001),  # published: the whole text follows
        ("<reasoning>\na\n</reasoning>\n", 0.25),
        ("<reasoning>a</reasoning><answer>b</answer>", 0.0),
        (ONE_LINE + ONE_LINE, 0.0),
        ("", 0.0),
    ],
)
def test_xmlcount_pays_a_tag_and_takes_back_what_follows(completion: str, expected: float) -> None:
    assert score(completion, mode="xmlcount") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("completion", "tagged", "boxed"),
    [
        ("<answer>\n72\n</answer>", 1.0, 0.0),
        ("<answer>72", 1.0, 0.0),  # as published, the tag need not close
        ("72", 1.0, 1.0),
        (r"so \boxed{72}", 0.0, 1.0),
        ("<answer>7.5</answer>", 0.0, 0.0),
        ("<answer>-7</answer>", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_an_integer_is_digits_in_the_tag_or_in_the_box(
    completion: str, tagged: float, boxed: float
) -> None:
    assert score(completion, mode="integer") == tagged
    assert score(completion, mode="integer", rule="maskgrpo") == boxed


@pytest.mark.parametrize(
    ("completion", "paid"),
    [(r"<answer>\boxed{5}</answer>", 1.0), ("<answer>5</answer>", 0.75), (r"\boxed{5}", 0.5)]
    + [(r"\boxed{5} <answer>5</answer>", 0.75), ("5", 0.25)],
)
def test_the_box_in_the_answer_tag_is_paid(completion: str, paid: float) -> None:
    assert score(completion, mode="boxed_and_answer_tags") == paid


def test_maskgrpo_wants_one_pair_of_tags_alone() -> None:
    thought = "well <think>\na\nb\n</think> 5"
    options: dict[str, Any] = {"rule": "maskgrpo", "tags": ["think"]}
    assert score(thought, **options) == 1.0 and score("<think>a", **options) == 0.0
    assert score(thought, mode="xmlcount", **options) == 0.25
    assert score("<think>a</think>", mode="xmlcount", **options) == 0.0
    assert score(ONE_LINE, mode="strict", rule="maskgrpo") == 1.0
    assert score(STRICT, mode="strict", rule="maskgrpo") == 0.0


@pytest.mark.parametrize(
    ("completion", "expected"),
    [("```python\nx = 1\n```", 1.0), ("```python\nx = = 1\n```", 0.5)]
    + [("```python\n" + "(" * 5000 + "\n```", 0.5), ("```\nx = 1\n```", 0.0), ("x = 1", 0.0)]
    + [("```python\n1 +\n``` and ```python\nx = 1\n```", 1.0)],
)
def test_a_code_block_is_worth_half_if_it_does_not_parse(completion: str, expected: float) -> None:
    assert score(completion, mode="code_block") == expected
