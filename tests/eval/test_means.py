import math

import pytest

from mmrl.evaluation.image_benchmark import format_tags, share_with_correct
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


def test_the_standard_error_is_the_sample_deviation_over_the_root_of_n() -> None:
    table = mean_by_tag(_prompts(["colors"] * 4), [1.0, 0.0, 1.0, 0.0])
    assert table["colors"]["stderr"] == pytest.approx(math.sqrt(1 / 3) / 2)


def test_images_of_one_prompt_do_not_pass_for_independent_prompts() -> None:
    prompts = [prompt for prompt in _prompts(["colors"] * 4) for _ in range(3)]
    scores = [score for score in (1.0, 0.0, 1.0, 0.0) for _ in range(3)]
    table = mean_by_tag(prompts, scores)
    assert table["colors"]["n"] == 12
    assert table["colors"]["stderr"] == pytest.approx(math.sqrt(1 / 3) / 2)


def test_a_score_that_does_not_apply_is_left_out() -> None:
    table = mean_by_tag(_prompts(["colors", "colors"]), [1.0, math.nan])
    assert table["colors"] == {"mean": 1.0, "stderr": 0.0, "n": 1.0}


def test_the_text_names_every_tag_and_reward() -> None:
    table = mean_by_tag(_prompts(["colors", "position"]), [1.0, 0.0])
    text = format_tags({"strict": table, "partial": table})
    assert "colors" in text and "mean over tags" in text and "1.000 ± 0.000" in text
    assert len({len(line) for line in text.splitlines()}) == 1


def test_a_prompt_is_correct_if_one_of_its_images_is() -> None:
    prompts = [prompt for prompt in _prompts(["colors"] * 3) for _ in range(2)]
    scores = {"geneval": [0.0, 1.0, 0.0, 0.0, 1.0, 1.0], "partial": [0.5, 1, 0, 0, 1, 1]}
    evaluation = Evaluation(prompts, [], scores)
    assert share_with_correct(evaluation, 2) == {"geneval": pytest.approx(2 / 3)}
    assert share_with_correct(evaluation, 1) == {}
