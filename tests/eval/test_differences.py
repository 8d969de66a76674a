"""Paired differences: their error, interval, signs, and the mean over tags."""

import math

import numpy as np
import pytest
from scipy import stats

from mmrl.config import ConfigError
from mmrl.evaluation.differences import Row, compare_evaluations, format_differences
from mmrl.rollouts.held_out import Evaluation
from mmrl.types import Prompt


def evaluation(scores: list[float], each: int = 1, tags: str = "") -> Evaluation:
    """Scores of prompts, `each` of every prompt; `tags` has a letter per prompt."""
    prompts = [
        Prompt(
            f"p{n // each}", "text", f"text {n // each}", metadata={"tag": tags[n // each :][:1]}
        )
        for n in range(len(scores))
    ]
    return Evaluation(prompts, [""] * len(scores), {"reward": scores})


def row(first: Evaluation, second: Evaluation) -> Row:
    return compare_evaluations(first, second)["reward"]["mean over prompts"]


def test_error_and_interval_are_those_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(40)
    first, second = (hard + rng.normal(0.1 * n, 0.2, 40) for n in (1, 0))
    found = row(evaluation([*map(float, first)]), evaluation([*map(float, second)]))
    interval = stats.ttest_rel(first, second).confidence_interval()
    assert found["difference"] == pytest.approx(float(first.mean() - second.mean()))
    assert found["stderr"] == pytest.approx(float(stats.sem(first - second)))
    assert (found["low"], found["high"]) == (
        pytest.approx(float(interval.low)),
        pytest.approx(float(interval.high)),
    )
    assert (found["stderr"] or 0) < math.hypot(stats.sem(first), stats.sem(second)) / 1.5


def test_wins_ties_and_losses_are_prompts_and_the_sign_test_leaves_ties_out() -> None:
    first = evaluation([1, 1, 1, 0, 1, 1, 0, 0, 1, 1], each=2)
    second = evaluation([0, 1, 0, 0, 1, 1, 1, 0, 0, 0], each=2)
    found = row(first, second)
    assert [found[key] for key in ("wins", "ties", "losses", "n")] == [3, 1, 1, 5]
    assert found["p"] == pytest.approx(float(stats.binomtest(3, 4).pvalue))
    assert (found["first"], found["second"]) == (0.7, pytest.approx(0.4))


def test_equal_checkpoints_differ_by_exactly_nothing() -> None:
    found = row(evaluation([0.1, 0.2, 0.3]), evaluation([0.1, 0.2, 0.3]))
    assert [found[key] for key in ("difference", "stderr", "low", "high", "p", "ties")] == [
        0, 0, 0, 0, 1, 3,
    ]  # fmt: skip


def test_a_sample_that_one_of_them_has_no_score_for_is_left_out_of_both() -> None:
    found = row(evaluation([1, math.nan, 0, 1], each=2), evaluation([0, 1, 0, 1], each=2))
    assert (found["first"], found["second"], found["n"]) == (0.75, 0.25, 2)
    assert compare_evaluations(evaluation([math.nan]), evaluation([1.0])) == {"reward": {}}


def test_one_prompt_has_a_difference_and_no_error() -> None:
    found = row(evaluation([1.0]), evaluation([0.0]))
    assert (found["difference"], found["stderr"], found["low"]) == (1, None, None)
    assert "+1.000" in format_differences("reward", {"all": found})


def test_every_tag_counts_the_same_in_the_mean_over_tags() -> None:
    first, second = (
        evaluation([1, 1, 1, 1, 0, 1], tags="aaaabb"),
        evaluation([0.0] * 6, tags="aaaabb"),
    )
    rows = compare_evaluations(first, second)["reward"]
    assert rows["a"]["difference"] == 1 and rows["b"]["difference"] == 0.5
    over = rows["mean over tags"]
    assert over["difference"] == 0.75 and over["stderr"] == pytest.approx(
        (rows["b"]["stderr"] or 0) / 2
    )
    assert rows["mean over prompts"]["difference"] == pytest.approx(5 / 6)


def test_other_prompts_are_refused_by_name() -> None:
    shorter = Evaluation(evaluation([1, 0]).prompts[:1], [""], {"reward": [1]})
    with pytest.raises(ConfigError, match=r"different prompts: 1 differ, such as p1\. .* raise"):
        compare_evaluations(evaluation([1, 0]), shorter)
