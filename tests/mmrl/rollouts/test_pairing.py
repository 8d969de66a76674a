"""Methods and samplers that do not fit together, known before any model loads."""

import logging

import pytest

from mmrl.algorithms import load_algorithm
from mmrl.config import ConfigError, merge
from mmrl.config.chosen import warn_once
from mmrl.generation.kinds import STRATEGY_KINDS
from mmrl.rollouts.pairing import check_pairing, find_differences
from mmrl.rollouts.task_config import TaskConfig
from mmrl.samplers import SamplerConfig


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
        ({"name": "fork"}, {"name": "trace_rl"}, "takes certain tokens without a draw"),
    ],
)
def test_what_is_scored_otherwise_than_sampled_is_said(
    sampler: dict, algorithm: dict, said: str
) -> None:
    [found] = find_differences(load_algorithm(algorithm), SamplerConfig(**sampler))
    assert said in found


def test_forks_are_scored_of_a_sampler_that_has_some() -> None:
    method = load_algorithm({"name": "fork_grpo"})
    with pytest.raises(ConfigError, match=r"t\.sampler\.name is 'dynamic'; it must be fork, whose"):
        check_pairing(method, SamplerConfig(name="dynamic"), "tasks.t")
    check_pairing(method, SamplerConfig(name="fork"), "tasks.t")
    assert find_differences(method, SamplerConfig(name="fork")) == []


def test_a_setting_that_the_rule_does_not_read_is_left_out_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_once.cache_clear()
    section = {"name": "left_to_right", "steps": 4, "target": "random", "threshold": 0.5}
    task = {"sampler": {**section, "cache": "none", "schedule": "cosine"}}
    with caplog.at_level(logging.WARNING):
        config = merge(TaskConfig, task, {"eval_sampler": {"name": "static"}}, where="tasks.t")
    assert config.sampler == SamplerConfig(name="left_to_right", steps=4)
    assert config.eval_sampler == SamplerConfig(name="static")
    assert [record.message for record in caplog.records] == [
        "tasks.t.sampler.target is random and is not read; with name: static it would be",
        "tasks.t.sampler.threshold is 0.5 and is not read; with name: dynamic, fork it would be",
    ]
    with pytest.raises(ConfigError, match=r"tasks\.t\.sampler\.treshold is not a setting"):
        merge(TaskConfig, {"sampler": {"name": "dynamic", "treshold": 0.5}}, where="tasks.t")


def test_a_strategy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGY_KINDS, "trace", "flow")
    with pytest.raises(ConfigError, match=r"tasks\.t\.algorithm\.strategy is 'trace'.*masked"):
        check_pairing(load_algorithm({"name": "trace_rl"}), SamplerConfig(), "tasks.t")
