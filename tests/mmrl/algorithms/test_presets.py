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


def test_options_win_over_the_preset() -> None:
    row = load_algorithm({"name": "diffu_grpo", "beta": 0.5, "aggregation": "grpo"})
    assert (row.beta, row.aggregation, row.mask) == (0.5, "grpo", "full")


def test_without_an_upper_range_the_lower_one_serves_both() -> None:
    assert AlgorithmConfig(epsilon=0.1).upper_epsilon == 0.1
    assert AlgorithmConfig(epsilon=0.1, epsilon_high=0.3).upper_epsilon == 0.3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name": "mask_grop"}, ["'mask_grop'", "unigrpo", "Did you mean 'mask_grpo'?"]),
        ({"mask": "randon"}, ["algorithm.mask", "'randon'", "full", "random"]),
        ({"bound": "eelbo"}, ["algorithm.bound", "elbo"]),
        ({"ratio_level": "word"}, ["algorithm.ratio_level", "sequence"]),
        ({"aggregation": "mean"}, ["algorithm.aggregation", "dr_grpo"]),
        ({"kl": "k4"}, ["algorithm.kl", "k1, k2, k3"]),
        ({"scale_rewards": "all"}, ["algorithm.scale_rewards", "batch, group, none"]),
        ({"num_iterations": 0}, ["algorithm.num_iterations", "0"]),
        ({"num_draws": 0}, ["algorithm.num_draws", "at least 1"]),
        ({"min_mask_rate": 1.5}, ["algorithm.min_mask_rate", "1.5", "between 0 and 1"]),
        ({"beta": -1.0}, ["algorithm.beta", "0 or more"]),
        ({"epsilon": -0.1}, ["algorithm.epsilon", "0 or more"]),
        ({"epsilon_high": -0.1}, ["algorithm.epsilon_high", "0 or more"]),
        ({"temperature": 0.0}, ["algorithm.temperature", "above 0"]),
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
