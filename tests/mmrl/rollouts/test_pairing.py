"""Methods and samplers that do not fit together, known before any model loads."""

import logging
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from mmrl.algorithms import load_algorithm
from mmrl.algorithms.presets import find_unread
from mmrl.config import ConfigError
from mmrl.config.yaml_file import configs
from mmrl.planning.plan import describe
from mmrl.rollouts.pairing import check_pairing, find_differences
from mmrl.rollouts.tasks import Task
from mmrl.samplers import RULES, SamplerConfig
from mmrl.samplers import find_unread as unread_by
from tests.mmrl.runs import run_config, task_config


def test_a_trace_method_needs_more_than_one_denoising_step() -> None:
    with pytest.raises(ConfigError, match=r"tasks\.t\.sampler\.steps is 1.*mask: full"):
        check_pairing(load_algorithm({"name": "trace_rl"}), SamplerConfig(steps=1), "tasks.t")
    check_pairing(load_algorithm({"name": "mask_grpo"}), SamplerConfig(steps=1), "tasks.t")


def test_a_trace_method_needs_a_sampler_that_records_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "untraced", RULES["emerge"]._replace(traced=False))
    with pytest.raises(ConfigError, match="'untraced' records no order of writing"):
        check_pairing(load_algorithm({"name": "step_merge"}), SamplerConfig(name="untraced"), "t")


def test_it_is_refused_while_the_task_is_read(world: SimpleNamespace) -> None:
    config = task_config(world, algorithm={"name": "trace_rl"}, sampler=SamplerConfig(steps=1))
    with pytest.raises(ConfigError, match=r"tasks\.shapes\.algorithm\.mask is 'trace'"):
        Task("shapes", config)


@pytest.mark.parametrize(
    ("sampler", "algorithm", "said"),
    [
        ({"cfg_scale": 3.5}, {}, "cfg_scale is 3.5 in the rollout and 0 in scoring"),
        ({}, {"cfg_scale": 1.0}, "cfg_scale is 0 in the rollout and 1 in scoring"),
        ({"temperature": 0.8}, {}, "temperature is 0.8 in the rollout and 1 in scoring"),
        ({"top_k": 5}, {}, "filters tokens"),
        ({"eos": "suppress"}, {}, "never writes the end token (eos: suppress)"),
        ({"cache": "dual"}, {}, "the rollout reads a cache (dual)"),
        ({"block_size": 16}, {"name": "spg"}, "block_size is 16 in the rollout and 32 in scoring"),
        ({}, {"name": "just_grpo"}, "an order that sampler emerge does not follow"),
    ],
)
def test_what_is_scored_otherwise_than_sampled_is_said(
    sampler: dict, algorithm: dict, said: str
) -> None:
    [found] = find_differences(load_algorithm(algorithm), SamplerConfig(**sampler))
    assert said in found


def test_equal_settings_have_no_difference() -> None:
    row = load_algorithm({"cfg_scale": 2.0, "temperature": 0.9})
    assert find_differences(row, SamplerConfig(cfg_scale=2.0, temperature=0.9)) == []
    blocks = load_algorithm({"name": "spg", "block_size": 8})
    assert find_differences(blocks, SamplerConfig(block_size=8)) == []
    assert find_differences(load_algorithm({"block_size": 8}), SamplerConfig()) == []


def test_guidance_in_the_rollout_alone_is_in_the_log_and_in_the_dry_run(
    world: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = {"sampler": SamplerConfig(steps=3, cfg_scale=1.5)}
    config = run_config(world, tmp_path, task=task)
    with caplog.at_level(logging.WARNING):
        said = " ".join(str(describe(config)).split())
    assert "mismatch cfg_scale is 1.5 in the rollout and 0 in scoring" in said
    assert "the scored policy is not the one that samples: cfg_scale is 1.5" in caplog.text


def test_a_setting_that_no_column_reads_is_in_the_log_and_in_the_dry_run(
    world: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    algorithm = {"slice_size": 3, "eubo_beta": 2.0}
    with caplog.at_level(logging.WARNING):
        said = " ".join(str(describe(run_config(world, tmp_path, algorithm=algorithm))).split())
    cut = "slice_size is 3, and mask: random does not read it (trace, left_to_right would)"
    power = "eubo_beta is 2.0, and bound: token does not read it (eubo, sandwich would)"
    for message in (cut, power):
        assert f"no effect {message}" in said
        assert f"tasks.shapes.algorithm: {message}" in caplog.text
    assert "min_mask_rate" not in caplog.text  # random masks read what the preset sets


def test_a_setting_that_the_rule_does_not_read_is_in_the_log_and_in_the_dry_run(
    world: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = SamplerConfig(name="left_to_right", steps=4, target="margin", threshold=0.5)
    task = {"sampler": left, "eval_sampler": SamplerConfig(name="static", schedule="linear")}
    with caplog.at_level(logging.WARNING):
        said = " ".join(str(describe(run_config(world, tmp_path, task=task))).split())
    target = "target is margin, and name: left_to_right does not read it (dynamic, static would)"
    assert f"no effect {target}" in said and f"tasks.shapes.sampler: {target}" in caplog.text
    assert "threshold is 0.5, and name: left_to_right does not read it (dynamic would)" in said
    schedule = (
        "schedule is linear, and name: static does not read it (emerge, lumina, maskgit would)"
    )
    assert f"tasks.shapes.eval_sampler: {schedule}" in caplog.text
    for name, rule in RULES.items():
        changed = {"schedule": "linear", "target": "margin", "choice_temperature": 2.0}
        config = SamplerConfig(name=name, threshold=0.5, entropy_bound=1.0, **changed)
        set_here = {"threshold", "entropy_bound", *changed}
        assert len(unread_by(config)) == len(set_here - {f.name for f in fields(rule.Config)})


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        (
            {"block_size": 16},
            "block_size is 16, and mask: random and ratio_level: token do not go by blocks",
        ),
        (
            {"name": "wd1", "epsilon": 0.3},
            "epsilon is 0.3, and ratio_level: none clips no ratio",
        ),
        (
            {"name": "wd1", "epsilon_high": 0.2},
            "epsilon_high is 0.2, and ratio_level: none clips no ratio",
        ),
        (
            {"name": "bgpo", "epsilon": 0.3},
            "epsilon is 0.3, and bound: additive clips no ratio",
        ),
        ({"beta": 0.0, "kl": "k1"}, "kl is k1, and beta: 0 takes no KL"),
        ({"beta": 0.0, "kl_to": "old"}, "kl_to is old, and beta: 0 takes no KL"),
        ({"beta": 0.0, "kl_level": "bound"}, "kl_level is bound, and beta: 0 takes no KL"),
    ],
)
def test_settings_of_what_a_row_leaves_out_are_said(algorithm: dict, said: str) -> None:
    assert find_unread(load_algorithm(algorithm)) == [said]


@pytest.mark.parametrize(
    "algorithm",
    [
        {"ratio_level": "block", "block_size": 16},
        {"name": "spg", "block_size": 16},
        {"epsilon": 0.3, "epsilon_high": 0.4},
        # the clip range of values follows that of the ratio, unless it has its own
        {"name": "trace_rl_value", "ratio_level": "none", "epsilon": 0.3},
        {"beta": 0.0, "epsilon": 0.3},
        {"kl": "k1", "kl_to": "old", "kl_level": "bound"},
    ],
)
def test_what_a_column_reads_is_not_said(algorithm: dict) -> None:
    row = load_algorithm({**algorithm, "beta": algorithm.get("beta", 0.01)})
    assert find_unread(row) == []


def test_a_range_of_its_own_for_values_leaves_that_of_the_ratio_unread() -> None:
    row = {"name": "trace_rl_value", "ratio_level": "none", "epsilon": 0.3}
    [found] = find_unread(load_algorithm({**row, "value": {"cliprange_value": 0.1}}))
    assert found.startswith("epsilon is 0.3")


@pytest.mark.parametrize("preset", sorted(path.stem for path in configs().glob("algorithm/*.yaml")))
def test_presets_set_nothing_without_effect(preset: str) -> None:
    assert find_unread(load_algorithm({"name": preset})) == []
