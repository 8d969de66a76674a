import itertools
import math

import pytest

from mmrl.config import ConfigError
from mmrl.evaluation.text_benchmark import cost_row, format_rows
from mmrl.evaluation.text_scores import group_places, pass_at, score_groups, score_row
from mmrl.rollouts.held_out import Batch
from mmrl.types import Prompt


def batch(*lengths: int, forwards: int) -> Batch:
    return Batch([""] * len(lengths), list(lengths), 8, forwards, 1.0, [])


def prompts(*ids: str) -> list[Prompt]:
    return [Prompt(name, "text", "?") for name in ids]


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 3), (6, 1, 2), (4, 4, 1), (4, 0, 4), (6, 5, 6)])
def test_pass_at_k_is_the_share_of_draws_of_k_with_a_right_sample(n: int, c: int, k: int) -> None:
    draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at(k, n, c) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_scores_become_accuracy_and_its_error_over_prompts() -> None:
    row = score_row(prompts("a", "a", "b", "b"), {"math": [1, 1, 1, 0], "form": [0.5] * 4}, 2)
    assert (row["accuracy"], row["n"], row["avg@2"]) == (0.75, 4, 0.75)
    assert row["stderr"] == pytest.approx(math.sqrt(2 * (0.5**2 + 0.5**2)) / 4)
    assert (row["pass@1"], row["pass@2"]) == (0.75, 1.0)
    assert (row["rewards/form/mean"], row["rewards/form/stderr"]) == (0.5, 0.0)


def test_a_sample_without_score_is_left_out_and_pass_at_k_needs_k_of_them() -> None:
    row = score_row(prompts("a", "a", "b", "b"), {"math": [1, math.nan, 0, 0]}, 2)
    assert (row["n"], row["accuracy"]) == (3, pytest.approx(1 / 3))
    assert (row["avg@2"], row["pass@1"], row["pass@2"]) == (0.5, 0.5, 0.0)
    assert score_row(prompts("a"), {"math": [math.nan]}, 1) == {"n": 0.0}


def test_shares_have_no_pass_at_k() -> None:
    row = score_row(prompts("a", "b"), {"sudoku": [0.25, 1.0]}, 1)
    assert row["accuracy"] == 0.625 and not [key for key in row if key.startswith("pass")]


def test_the_cost_counts_tokens_before_the_end_and_all_positions_apart() -> None:
    row = cost_row([batch(2, 8, forwards=4), batch(8, forwards=8)])
    assert row["length"] == 6 and row["cut_off"] == pytest.approx(2 / 3)
    assert row["nfe"] == pytest.approx(16 / 3)
    assert (row["tokens_per_s"], row["raw_tokens_per_s"]) == (9, 12)


def test_the_table_has_a_line_per_setting_and_shows_what_is_missing() -> None:
    cost = cost_row([batch(3, 4, forwards=4)])
    half = score_row(prompts("a", "b"), {"math": [1, 0]}, 1) | cost
    none = {"n": 0.0} | cost
    heads, first, second, *_ = format_rows({"length 8": half, "b": none}, left_out=3).splitlines()
    assert heads.split()[:3] == ["accuracy", "length", "truncated"] and "@" not in heads
    assert " ".join(first.split()) == "length 8 0.500 ± 0.500 3.5 0.000 4.0 7.0 16.0 2"
    assert " ".join(second.split()) == "b - 3.5 0.000 4.0 7.0 16.0 0"
    assert "3 prompts too long" in format_rows({"b": none}, left_out=3)
    repeated = score_row(prompts("a", "a"), {"math": [1, 0]}, 2)
    assert format_rows({"x": repeated}).split()[1:3] == ["avg@2", "pass@2"]


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
    row = score_row(TWICE, {"answer": SCORES}, 2)
    groups = score_groups(TWICE, {"answer": SCORES}, 2)
    parts = format_rows({"static": row}, 0, {"static": groups}).split("\n\n")
    head, count, color = parts[1].splitlines()
    assert head.split() == ["tag", "accuracy", "avg@2", "pass@2", "n"]
    assert count.split()[0] == "count" and count.split()[-1] == "3"
    assert color.split() == ["color", "1.000", "±", "0.000", "1.000", "1.000", "2"]
    both = format_rows({"a": row, "b": row}, 0, {"a": groups, "b": groups})
    assert "a: tag" in both and "b: tag" in both
