"""Methods and samplers that do not fit together, known before any model loads."""

import logging
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from mmrl.algorithms import load_algorithm
from mmrl.config import ConfigError
from mmrl.config.chosen import unread_options
from mmrl.generation.masked.samplers import RULES
from mmrl.planning.plan import describe
from mmrl.rollouts.pairing import check_pairing, find_differences
from mmrl.samplers import SamplerConfig
from tests.mmrl.runs import run_config


def test_a_trace_method_needs_more_than_one_denoising_step() -> None:
    with pytest.raises(ConfigError, match=r"tasks\.t\.sampler\.steps is 1.*strategy: full"):
        check_pairing(load_algorithm({"name": "trace_rl"}), SamplerConfig(steps=1), "tasks.t")
    check_pairing(load_algorithm({"name": "mask_grpo"}), SamplerConfig(steps=1), "tasks.t")


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


def test_a_setting_that_the_rule_does_not_read_is_in_the_log_and_in_the_dry_run(
    world: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = SamplerConfig(name="left_to_right", steps=4, target="random", threshold=0.5)
    task = {"sampler": left, "eval_sampler": SamplerConfig(name="static", schedule="linear")}
    with caplog.at_level(logging.WARNING):
        said = " ".join(str(describe(run_config(world, tmp_path, task=task))).split())
    target = "target is random, and name: left_to_right does not read it (static would)"
    assert f"no effect {target}" in said and f"tasks.shapes.sampler: {target}" in caplog.text
    assert "threshold is 0.5, and name: left_to_right does not read it (dynamic would)" in said
    schedule = (
        "schedule is linear, and name: static does not read it (emerge, lumina, maskgit would)"
    )
    assert f"tasks.shapes.eval_sampler: {schedule}" in caplog.text
    for name, rule in RULES.items():
        changed = {"schedule": "linear", "target": "random", "choice_temperature": 2.0}
        config = SamplerConfig(name=name, threshold=0.5, **changed)
        set_here = {"threshold", *changed}
        assert len(unread_options(config)) == len(set_here - {f.name for f in fields(rule.Config)})
