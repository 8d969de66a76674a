"""Scores by group: what falls into one, what a misspelt key says, and what the table shows."""

import math

import pytest

from mmrl.config import ConfigError
from mmrl.evaluation.text_benchmark import format_rows
from mmrl.evaluation.text_scores import group_places, score_groups, score_row
from mmrl.types import Prompt

PROMPTS = [
    Prompt(name, "image_to_text", "?", metadata={"tag": tag, "form": "short", **rest})
    for name, tag, rest in (
        ("a", "count", {"skills": ["sums", "charts"]}),
        ("b", "color", {"skills": ["charts"], "level": 2}),
        ("c", "count", {}),
    )
]
TWICE = [prompt for prompt in PROMPTS for _ in range(2)]
SCORES = [1.0, 0.0, 1.0, 1.0, 0.0, math.nan]


def test_every_group_has_the_scores_of_its_own_prompts() -> None:
    groups = score_groups(TWICE, {"answer": SCORES}, 2)
    assert list(groups) == ["tag"] and list(groups["tag"]) == ["count", "color"]
    count = score_row([TWICE[n] for n in (0, 1, 4, 5)], {"answer": [1.0, 0.0, 0.0, math.nan]}, 2)
    assert groups["tag"]["count"] == count
    assert (count["accuracy"], count["n"], count["avg@2"]) == (pytest.approx(1 / 3), 3, 0.25)
    assert groups["tag"]["color"]["pass@2"] == 1.0


def test_a_prompt_counts_under_each_value_of_a_list_and_under_none_that_it_lacks() -> None:
    assert group_places(PROMPTS, ["skills", "level", "form"]) == {
        "skills": {"sums": [0], "charts": [0, 1]},
        "level": {"2": [1]},
        "form": {"short": [0, 1, 2]},
    }


def test_a_key_that_no_prompt_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"group_by names 'tags'.*\['form', 'level', 'skills'"):
        group_places(PROMPTS, ["tags"])


def test_the_table_shows_a_part_per_key_and_setting() -> None:
    row, groups = (
        score_row(TWICE, {"answer": SCORES}, 2),
        score_groups(TWICE, {"answer": SCORES}, 2),
    )
    parts = format_rows({"static": row}, 0, {"static": groups}).split("\n\n")
    head, count, color = parts[1].splitlines()
    assert head.split() == ["tag", "accuracy", "avg@2", "pass@2", "n"]
    assert count.split()[0] == "count" and count.split()[-1] == "3"
    assert color.split() == ["color", "1.000", "±", "0.000", "1.000", "1.000", "2"]
    both = format_rows({"a": row, "b": row}, 0, {"a": groups, "b": groups})
    assert "a: tag" in both and "b: tag" in both
