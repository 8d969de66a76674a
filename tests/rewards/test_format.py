"""The format reward: tags soft and strict, boxes."""

import time
from typing import Any

import pytest
from PIL import Image

from mmrl.types import Sample
from rewards import build_reward

STRICT = "<reasoning>\nfirst\n\nthen\n</reasoning>\n<answer>\n5\n</answer>\n"
SOFT = "  <reasoning>first\nthen</reasoning>  <answer>5</answer> and so on"


def score(completion: str, **options: Any) -> float | None:
    return build_reward({"name": "format", **options})([Sample("q", completion)])[0]


@pytest.mark.parametrize(
    ("completion", "soft", "strict"),
    [
        (STRICT, 1.0, 1.0),
        (STRICT.rstrip(), 1.0, 1.0),
        (SOFT, 1.0, 0.0),
        (STRICT + "more", 1.0, 0.0),
        ("so: " + STRICT, 0.0, 0.0),
        (STRICT.replace("</reasoning>\n", "</reasoning>\nso\n"), 0.0, 0.0),
        (STRICT.replace("\n5\n", "\n \n"), 0.0, 0.0),
        (STRICT + STRICT, 0.0, 0.0),
        ("<answer>\n5\n</answer>\n<reasoning>\nfirst\n</reasoning>\n", 0.0, 0.0),
        (STRICT.replace("</answer>", ""), 0.0, 0.0),
        ("<reasoning></reasoning><answer></answer>", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_tags_stand_once_each_filled_and_in_order(
    completion: str, soft: float, strict: float
) -> None:
    assert score(completion) == soft
    assert score(completion, mode="strict") == strict


def test_the_first_tag_may_come_from_the_prompt() -> None:
    completion = STRICT.removeprefix("<reasoning>")
    assert score(completion) == 0.0
    assert score(completion, prefilled=True) == 1.0
    assert score(completion, prefilled=True, mode="strict") == 1.0
    assert score(STRICT, prefilled=True) == 0.0


def test_tags_can_be_named() -> None:
    assert score("<think>a</think><answer>b</answer>", tags=["think", "answer"]) == 1.0
    assert score("<think>a</think>", tags=["think"]) == 1.0


@pytest.mark.parametrize(
    ("completion", "expected"),
    [(r"so \boxed{5}", 1.0), (r"\boxed{ }", 0.0), (r"\boxed{5", 0.0), ("boxed{5}", 0.0)],
)
def test_a_box_is_closed_and_filled(completion: str, expected: float) -> None:
    assert score(completion, mode="boxed") == expected


def test_a_long_completion_that_almost_fits_is_judged_at_once() -> None:
    start = time.monotonic()
    assert score("<reasoning>" + " a" * 100_000 + "</reasoning> <answer>" + " b" * 100_000) == 0.0
    assert time.monotonic() - start < 1


def test_wrong_options_and_pictures_are_refused() -> None:
    with pytest.raises(ValueError, match="mode.*'xml'.*soft"):
        build_reward({"name": "format", "mode": "xml"})
    with pytest.raises(ValueError, match="at least one tag"):
        build_reward({"name": "format", "tags": []})
    with pytest.raises(ValueError, match="reads text"):
        build_reward({"name": "format"})([Sample("q", Image.new("RGB", (4, 4)))])
