"""Presets: rows of one table, by name, with every column open to change."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from mmrl.algorithms import load_algorithm
from mmrl.config import ConfigError, load_config, to_plain
from mmrl.rl_config import RLConfig
from tests.mmrl.runs import run_config

PRESETS = sorted(
    path.stem for path in (Path(__file__).parents[3] / "configs" / "algorithm").glob("*.yaml")
)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_cites_its_paper_and_names_its_deviations(name: str) -> None:
    text = (Path(__file__).parents[3] / "configs" / "algorithm" / f"{name}.yaml").read_text()
    said = " ".join(line[1:].strip() for line in text.splitlines() if line.startswith("#"))
    assert "arXiv 2" in said and "Deviation" in said


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name": "mask_grop"}, ["'mask_grop'", "unigrpo", "Did you mean 'mask_grpo'?"]),
        (
            {"scale_rewards": "all"},
            ["algorithm.scale_rewards", "batch, chunk, group, none, softmax"],
        ),
        (
            {"max_mask_rate": 0.1, "min_mask_rate": 0.5},
            ["max_mask_rate", "at least min_mask_rate"],
        ),
        # what cannot go together, and why
        ({"mask": "blockwise"}, ["algorithm.block_size", "needs blocks"]),
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
        (
            {"bound": "additive", "ratio_level": "sequence"},
            ["algorithm.ratio_level", "one by one", "step"],
        ),
        (
            {"top_entropy_quantile": 0.5, "bound": "elbo"},
            ["algorithm.top_entropy_quantile", "several tokens", "use bound: token"],
        ),
        (
            {"surrogate": "dppo", "ratio_level": "sequence"},
            ["algorithm.surrogate", "every token", "ratio_level: token"],
        ),
        ({"surrogate": "drpo", "aggregation": "gmpo"}, ["every token", "aggregation: dapo"]),
        ({"surrogate": "cispo", "aggregation": "gmpo"}, ["has its own", "surrogate: clipped"]),
        (
            {"baseline": "leave_one_out", "scale_rewards": "softmax"},
            ["algorithm.baseline", "within the group"],
        ),
        ({"surrogate": "cispo", "delta": 4.0}, ["algorithm.delta", "belongs to"]),
        ({"epsilonn": 0.1}, ["epsilonn", "Did you mean 'epsilon'?"]),
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


def test_the_columns_of_a_run_are_refused_under_the_name_of_another_preset(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path / "run", algorithm={"name": "trace_rl"})
    file = tmp_path / "config.yaml"
    tasks = to_plain(config)["tasks"]
    tasks["shapes"]["rewards"] = [{"name": "jpeg"}]
    OmegaConf.save({"model": to_plain(config)["model"], "tasks": tasks}, file)
    again = load_config(RLConfig, [f"config={file}"])
    assert again.tasks["shapes"].algorithm == config.tasks["shapes"].algorithm
    name = "tasks.shapes.algorithm.name"
    with pytest.raises(ConfigError, match=f"{name} is 'coupled_grpo'; it must be trace_rl"):
        load_config(RLConfig, [f"config={file}", f"{name}=coupled_grpo"])
    words = [f"config={file}", "~tasks.shapes.algorithm", f"{name}=coupled_grpo"]
    fresh = load_config(RLConfig, words).tasks["shapes"].algorithm
    assert load_algorithm(fresh) == load_algorithm({"name": "coupled_grpo"})
