"""Answers by category: pooled over images, on two levels, with the parents' no and without."""

import math

import pytest

from mmrl.evaluation.question_categories import format_categories, mean_by_category
from mmrl.rewards.registry.interface import Item
from mmrl.rollouts.held_out import Evaluation
from mmrl.types import Prompt


def test_categories_pool_the_questions_of_all_images_and_the_score_is_over_images() -> None:
    color, whole = "attribute - color", "entity - whole"
    items = [
        [Item(whole, 1, 1), Item(color, 1, 1), Item("attribute - size", 0, 0)],
        [Item(whole, 0, 0), Item(color, 1, 0)],
        [],
    ]
    prompts = [Prompt(str(n), "text_to_image", "x") for n in range(3)]
    evaluation = Evaluation(prompts, [], {"dsg": [2 / 3, 0.0, math.nan]}, {"dsg": items})
    found = mean_by_category(evaluation, "dsg")
    assert list(found["yes"]) == ["attribute", "entity", color, "attribute - size", whole]
    yes, score = ({row: cell["mean"] for row, cell in found[c].items()} for c in ("yes", "score"))
    assert yes == {
        "attribute": pytest.approx(2 / 3),
        "entity": 0.5,
        color: 1,
        "attribute - size": 0,
        whole: 0.5,
    }
    assert score["attribute"] == pytest.approx(1 / 3) and score[color] == 0.5
    assert score["mean over images"] == pytest.approx(1 / 3)
    said = format_categories("dsg", found)
    assert "66.67" in said and said.splitlines()[-1].split()[:4] == ["mean", "over", "images", "-"]
