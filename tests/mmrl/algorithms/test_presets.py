"""Presets: rows of one table, by name, with every column open to change."""

from pathlib import Path

import pytest

from mmrl.algorithms import AlgorithmConfig, load_algorithm
from mmrl.config import ConfigError

PRESETS = sorted(
    path.stem for path in (Path(__file__).parents[3] / "configs" / "algorithm").glob("*.yaml")
)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_row_of_the_table_under_its_own_name(name: str) -> None:
    row = load_algorithm({"name": name})
    assert isinstance(row, AlgorithmConfig) and row.name == name


def test_the_published_rows_differ_where_the_papers_do() -> None:
    rows = {name: load_algorithm({"name": name}) for name in PRESETS}
    assert rows["mask_grpo"].min_mask_rate > rows["unigrpo"].min_mask_rate == 0
    assert rows["diffu_grpo"].mask == "full" and rows["diffu_grpo"].scale_rewards == "none"
    assert rows["mask_grpo_text"].mask == "ar_like" and rows["mask_grpo"].mask == "random"
    assert {row.ratio_level for row in (rows["wd1"], rows["spg"])} == {"none"}
    assert {row.ratio_level for row in (rows["gdpo"], rows["espo"])} == {"sequence"}


def test_every_published_method_has_its_preset() -> None:
    assert set(PRESETS) == {
        "bgpo",
        "coupled_grpo",
        "diffu_grpo",
        "ebpo",
        "espo",
        "gdpo",
        "just_grpo",
        "mask_grpo",
        "mask_grpo_text",
        "random_masking",
        "spg",
        "step_merge",
        "trace_rl",
        "trace_rl_value",
        "unigrpo",
        "wd1",
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_cites_its_paper_and_names_its_deviations(name: str) -> None:
    text = (Path(__file__).parents[3] / "configs" / "algorithm" / f"{name}.yaml").read_text()
    said = " ".join(line[1:].strip() for line in text.splitlines() if line.startswith("#"))
    assert "arXiv 2" in said and "Deviation" in said


def test_options_win_over_the_preset() -> None:
    row = load_algorithm({"name": "diffu_grpo", "beta": 0.5, "aggregation": "grpo"})
    assert (row.beta, row.aggregation, row.mask) == (0.5, "grpo", "full")


def test_without_an_upper_range_the_lower_one_serves_both() -> None:
    assert AlgorithmConfig(epsilon=0.1).clip_range == (0.1, 0.1)
    assert AlgorithmConfig(epsilon=0.1, epsilon_high=0.3).clip_range == (0.1, 0.3)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name": "mask_grop"}, ["'mask_grop'", "unigrpo", "Did you mean 'mask_grpo'?"]),
        ({"mask": "randon"}, ["algorithm.mask", "'randon'", "full", "random"]),
        (
            {"scale_rewards": "all"},
            ["algorithm.scale_rewards", "batch, chunk, group, none, rank, softmax"],
        ),
        ({"min_mask_rate": 1.5}, ["algorithm.min_mask_rate", "1.5", "from 0 to 1"]),
        (
            {"max_mask_rate": 0.1, "min_mask_rate": 0.5},
            ["max_mask_rate", "at least min_mask_rate"],
        ),
        # what cannot go together, and why
        ({"mask": "blockwise"}, ["algorithm.block_size", "needs blocks"]),
        ({"ratio_level": "block"}, ["algorithm.block_size", "needs blocks"]),
        (
            {"ratio_level": "block", "block_size": 4, "bound": "elbo"},
            ["algorithm.ratio_level", "no value per position", "sequence"],
        ),
        ({"mask": "trace", "num_draws": 2}, ["algorithm.num_draws", "follows an order"]),
        ({"mask": "left_to_right", "prompt_mask_rate": 0.1}, ["algorithm.prompt_mask_rate"]),
        (
            {"mask": "trace", "num_slices": 4, "slice_size": 2},
            ["algorithm.num_slices", "slice_size 2", "null"],
        ),
        (
            {"aggregation": "gmpo", "ratio_level": "sequence"},
            ["algorithm.aggregation", "token by token", "gspo"],
        ),
        ({"aggregation": "gspo", "ratio_level": "none"}, ["algorithm.aggregation", "no ratio"]),
        (
            {"bound": "additive", "ratio_level": "sequence"},
            ["algorithm.ratio_level", "one by one", "step"],
        ),
        (
            {"bound": "additive", "ratio_level": "step", "aggregation": "gspo"},
            ["algorithm.aggregation", "sum over passes"],
        ),
        *[
            (
                {"top_entropy_quantile": 0.5, **columns},
                ["algorithm.top_entropy_quantile", "several tokens", "use bound: token"],
            )
            for columns in (
                {"bound": "elbo"},
                {"ratio_level": "step"},
                {"ratio_level": "sequence"},
                {"aggregation": "gmpo"},
            )
        ],
        (
            {"top_entropy_quantile": 0.5, "name": "trace_rl_value"},
            ["algorithm.top_entropy_quantile", "carry its reward back", "value to null"],
        ),
        ({"epsilonn": 0.1}, ["epsilonn", "Did you mean 'epsilon'?"]),
        ({"beta": "much"}, ["beta", "much"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_column_that_cannot_be_is_named_with_what_is_allowed(
    options: dict, named: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        load_algorithm(options)
    for word in named:
        assert word in str(error.value)
