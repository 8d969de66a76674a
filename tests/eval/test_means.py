"""Tables of image benchmarks: means by tag, and by category of question."""

import math

import numpy as np
import pytest
from scipy import stats

from mmrl.config import ConfigError
from mmrl.evaluation.comparison import Row, compare_evaluations, format_differences
from mmrl.evaluation.image_benchmark import format_rows, mean_by_category
from mmrl.rewards.registry.interface import Item
from mmrl.rollouts.held_out import Evaluation
from mmrl.rollouts.means import mean_by_tag
from mmrl.types import Prompt


def _prompts(tags: list[str]) -> list[Prompt]:
    return [
        Prompt(str(n), "text_to_image", "x", metadata={"tag": tag}) for n, tag in enumerate(tags)
    ]


def test_the_overall_score_is_the_mean_over_tags_as_in_geneval() -> None:
    table = mean_by_tag(_prompts(["colors", "colors", "colors", "position"]), [1.0, 1.0, 0.0, 0.0])
    assert table["colors"]["mean"] == pytest.approx(2 / 3)
    assert table["mean over tags"]["mean"] == pytest.approx(1 / 3)
    assert table["mean over prompts"]["mean"] == pytest.approx(0.5)


def test_images_of_one_prompt_do_not_pass_for_independent_prompts() -> None:
    prompts = [prompt for prompt in _prompts(["colors"] * 4) for _ in range(3)]
    scores = [score for score in (1.0, 0.0, 1.0, 0.0) for _ in range(3)]
    table = mean_by_tag(prompts, scores)
    assert table["colors"]["n"] == 12
    assert table["colors"]["stderr"] == pytest.approx(math.sqrt(1 / 3) / 2)


def test_a_score_that_does_not_apply_is_left_out() -> None:
    table = mean_by_tag(_prompts(["colors", "colors"]), [1.0, math.nan])
    assert table["colors"] == {"mean": 1.0, "stderr": 0.0, "n": 1.0}


def test_categories_pool_the_questions_of_all_images_and_the_score_is_over_images() -> None:
    color, whole = "attribute - color", "entity - whole"
    items = [
        [Item(whole, 1, 1), Item(color, 1, 1), Item("attribute - size", 0, 0)],
        [Item(whole, 0, 0), Item(color, 1, 0)],
        [],
    ]
    scores = {"dsg": [2 / 3, 0.0, math.nan]}
    found = mean_by_category(Evaluation(_prompts(["t"] * 3), [], scores, {"dsg": items}), "dsg")
    assert list(found["yes"]) == ["attribute", "entity", color, "attribute - size", whole]
    yes, score = ([cell["mean"] for cell in found[key].values()] for key in ("yes", "score"))
    assert yes == pytest.approx([2 / 3, 0.5, 1, 0, 0.5])
    assert score == pytest.approx([1 / 3, 0.5, 0.5, 0, 0.5, 1 / 3])
    said = format_rows("dsg x 100", found, 100)
    assert "66.67" in said and said.splitlines()[-1].split()[:4] == ["mean", "over", "prompts", "-"]


def evaluation(scores: list[float], each: int = 1) -> Evaluation:
    """Scores of prompts, `each` of every prompt."""
    prompts = [Prompt(f"p{n // each}", "text", f"text {n // each}") for n in range(len(scores))]
    return Evaluation(prompts, [""] * len(scores), {"reward": scores})


def row(first: Evaluation, second: Evaluation) -> Row:
    return compare_evaluations(first, second)["reward"]


def test_error_and_interval_are_those_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(40)
    first, second = (hard + rng.normal(0.1 * n, 0.2, 40) for n in (1, 0))
    found = row(evaluation([*map(float, first)]), evaluation([*map(float, second)]))
    interval = stats.ttest_rel(first, second).confidence_interval()
    assert found["difference"] == pytest.approx(float(first.mean() - second.mean()))
    assert found["stderr"] == pytest.approx(float(stats.sem(first - second)))
    assert found["low"] == pytest.approx(float(interval.low))
    assert found["high"] == pytest.approx(float(interval.high))
    assert (found["stderr"] or 0) < math.hypot(stats.sem(first), stats.sem(second)) / 1.5


def test_a_sample_that_one_of_them_has_no_score_for_is_left_out_of_both() -> None:
    found = row(evaluation([1, math.nan, 0, 1], each=2), evaluation([0, 1, 0, 1], each=2))
    assert (found["first"], found["second"], found["n"]) == (0.75, 0.25, 2)
    assert compare_evaluations(evaluation([math.nan]), evaluation([1.0])) == {}


def test_one_prompt_has_a_difference_and_no_error() -> None:
    found = row(evaluation([1.0]), evaluation([0.0]))
    assert (found["difference"], found["stderr"], found["low"]) == (1, None, None)
    assert "+1.000" in format_differences("text", {"reward": found})


def test_other_prompts_are_refused_by_name() -> None:
    shorter = Evaluation(evaluation([1, 0]).prompts[:1], [""], {"reward": [1]})
    with pytest.raises(ConfigError, match=r"different prompts: 1 differ, such as p1\. .* raise"):
        compare_evaluations(evaluation([1, 0]), shorter)
