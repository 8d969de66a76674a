"""Paired differences of two checkpoints: their error and interval, and what is left out."""

import math

import numpy as np
import pytest
from scipy import stats

from mmrl.config import ConfigError
from mmrl.evaluation.comparison import Row, compare_evaluations, format_differences
from mmrl.rollouts.held_out import Evaluation
from mmrl.types import Prompt


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
