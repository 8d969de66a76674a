"""The preset of a method with what differs from it, and which columns cannot go together."""

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from mmrl.algorithms.algorithm_config import AlgorithmConfig
from mmrl.algorithms.gaussians import GAUSSIAN_KL
from mmrl.algorithms.surrogates import SURROGATES
from mmrl.config import ConfigError, check, check_choice, merge, to_plain
from mmrl.config.chosen import keep_read
from mmrl.config.yaml_file import configs
from mmrl.generation.kinds import STRATEGIES
from mmrl.generation.masked.kind import RENAMED

DEFAULT_PRESET = "mask_grpo"
RESOLVED_FROM = "resolved_from"
"""Key of a whole row of the table that names its preset."""


def load_algorithm(options: Mapping[str, Any], where: str = "algorithm") -> AlgorithmConfig:
    """The preset named by `options["name"]` with the other options on top.

    Raises:
        ConfigError: an unknown preset, option or column value, columns that cannot go together, or
            those of one preset under the name of another.
    """
    presets = {path.stem: path for path in sorted(configs().glob("algorithm/*.yaml"))}
    name = options.get("name", DEFAULT_PRESET)
    check_choice(f"{where}.name", name, presets)
    origin = options.get(RESOLVED_FROM, name)
    advice = f"Leave the section out with ~{where}, and state what differs from {name}."
    check(origin == name, f"{where}.name", name, f"{origin}, whose columns it has", advice)
    stated = {RENAMED.get(k, k): value for k, value in options.items() if k != RESOLVED_FROM}
    return deepcopy(_load(presets[name], json.dumps(stated, default=_to_json), where))


def resolve_method(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Every column of a method and its origin, as options that give the same one again: what
    `config.yaml` of a run holds."""
    method = load_algorithm(options, where)
    return {**to_plain(method), RESOLVED_FROM: method.name}


def _to_json(value: Any) -> Any:
    """What JSON takes in the place of a section that is an OmegaConf container or a dataclass."""
    return OmegaConf.to_container(value if OmegaConf.is_config(value) else OmegaConf.create(value))


@cache  # a run asks many times, and merging is slow
def _load(preset: Path, options: str, where: str) -> AlgorithmConfig:
    """A preset with options, which are JSON, on top."""
    try:
        usual, stated = OmegaConf.to_container(OmegaConf.load(preset)), json.loads(options)
        assert isinstance(usual, dict), "a preset is a section"
        usual = keep_read(AlgorithmConfig, usual, stated)
        method = merge(AlgorithmConfig, usual, stated, where=where)
        for message in find_conflicts(method):
            raise ConfigError(f"algorithm.{message}")
    except ConfigError as error:
        message = str(error)
        if not message.startswith("algorithm."):
            raise
        raise ConfigError(where + message.removeprefix("algorithm")) from error
    return method


def find_conflicts(method: AlgorithmConfig) -> list[str]:
    """Columns that cannot go together: messages, each beginning with the key to change."""
    m, strategy = method, STRATEGIES[method.strategy]
    rate = getattr(m, "prompt_mask_rate", 0.0)
    by_token = m.bound == "token" and m.pass_by_pass  # every token has a separate term
    columns = f"bound: {m.bound} with ratio_level: {m.ratio_level} and aggregation: {m.aggregation}"
    one_term = (
        f"is set, and {columns} has one term for tokens whose advantages differ; use bound: token,"
        " ratio_level: token or step, aggregation: grpo; or null."
    )
    compares = f"compares means of denoising steps, and strategy: {m.strategy} scores tokens"
    reads_old = SURROGATES[m.surrogate].of_steps or (
        m.beta > 0 and m.kl_to == "old" and m.kl in GAUSSIAN_KL
    )
    usual = {
        "deviation": "sample",
        "multi_objective_aggregation": "sum_then_normalize",
        "adv_clip_max": None,
    }
    changed = [key for key, value in usual.items() if getattr(m, key) != value]
    several, completed = m.top_entropy_quantile < 1, m.completion_value is not None
    found = [
        (
            m.follows_blocks and m.block_size is None,
            f"block_size is null, and strategy: {m.strategy} with ratio_level: {m.ratio_level}"
            " needs blocks; give that of the sampler.",
        ),
        (
            strategy.ordered and m.num_draws != 1,
            f"num_draws is {m.num_draws}, and strategy: {m.strategy} follows an order instead of"
            " drawing; leave it at 1 and set slice_size or num_slices.",
        ),
        (
            strategy.ordered and rate > 0,
            f"prompt_mask_rate is {rate:g}, and strategy: {m.strategy} scores the states in"
            " which tokens were written, with the whole prompt; set it to 0.",
        ),
        (
            m.ratio_level == "block" and m.bound != "token",
            f"ratio_level is block, and bound: {m.bound} has no value per position; use bound:"
            " token, or ratio_level: sequence.",
        ),
        (
            m.aggregation == "gmpo" and (m.ratio_level, m.bound) != ("token", "token"),
            f"aggregation is gmpo, which clips token by token, and the ratio is of {columns}; use"
            " aggregation: gspo, or ratio_level: token with bound: token.",
        ),
        (
            m.aggregation == "gspo" and m.ratio_level == "none",
            "aggregation is gspo, and ratio_level: none forms no ratio to clip; use grpo.",
        ),
        (
            SURROGATES[m.surrogate].by_action and not (by_token and m.ratio_level == "token"),
            f"surrogate is {m.surrogate}, which reads the probability of every token or step, and"
            f" the ratio is of {columns}; use bound: token, ratio_level: token, and aggregation:"
            " dapo.",
        ),
        (
            SURROGATES[m.surrogate].of_steps and not strategy.of_steps,
            f"surrogate is {m.surrogate}, which {compares}; use strategy: replay, or surrogate:"
            " clipped.",
        ),
        (
            m.kl in GAUSSIAN_KL and not strategy.of_steps,
            f"kl is {m.kl}, which {compares}; use strategy: replay, or kl: k3.",
        ),
        (
            m.kl in GAUSSIAN_KL and m.kl_level == "bound",
            f"kl_level is bound, and kl: {m.kl} is of single denoising steps; use token.",
        ),
        (
            m.old_logprobs == "rollout" and not strategy.of_steps,
            f"old_logprobs is rollout, and strategy: {m.strategy} may show other states than those"
            " in which the sampler acted; use replay, or strategy: replay.",
        ),
        (
            m.old_logprobs == "rollout" and reads_old,
            f"old_logprobs is rollout, and a rollout records no means, which surrogate:"
            f" {m.surrogate} with kl: {m.kl} compares to those of the old policy; use replay.",
        ),
        (
            getattr(m, "step_weights", None) is not None and m.bound != "token",
            f"step_weights is set, and bound: {m.bound} has no term per step; use bound: token, or"
            " null.",
        ),
        (
            several and strategy.of_steps,
            f"top_entropy_quantile is {m.top_entropy_quantile:g}, and strategy: {m.strategy} scores"
            " denoising steps, whose entropy is given; set it to 1.",
        ),
        (
            m.temperature != 1 and strategy.of_steps,
            f"temperature is {m.temperature:g}, and strategy: {m.strategy} scores denoising steps,"
            " which have none; set it to 1.",
        ),
        (
            bool(changed) and (completed or m.value is not None),
            f"{', '.join(changed)} changes advantages of outcomes, from which value and"
            " completion_value make others; set these to null, or take the default.",
        ),
        (
            m.surrogate != "clipped" and (m.bound == "additive" or m.aggregation == "gmpo"),
            f"surrogate is {m.surrogate}, and {columns} has its own; use surrogate: clipped.",
        ),
        (
            m.surrogate != "clipped" and m.delta is not None,
            f"delta is {m.delta}, which belongs to surrogate: clipped; set it to null.",
        ),
        (
            m.bound == "additive" and m.ratio_level not in ("token", "step"),
            f"ratio_level is {m.ratio_level}, and bound: additive needs a ratio per pass, or its"
            " passes cannot be trained one by one; use ratio_level: step.",
        ),
        (
            m.bound == "additive" and m.aggregation not in ("grpo", "dapo", "dr_grpo"),
            f"aggregation is {m.aggregation}, and bound: additive is a sum over passes; use grpo.",
        ),
        (
            several and not (by_token and m.ratio_level in ("token", "none")),
            f"top_entropy_quantile is {m.top_entropy_quantile:g}, and {columns} has terms of"
            " several tokens, which cannot be left out one by one; use bound: token, ratio_level:"
            " token or none, and aggregation: grpo, dapo, dr_grpo or gspo; or set it to 1.",
        ),
        (
            several and m.value is not None,
            f"top_entropy_quantile is {m.top_entropy_quantile:g}, and value needs all tokens of a"
            " rollout to carry its reward back; set it to 1, or value to null.",
        ),
        (
            m.value is not None and not strategy.reads_trace,
            f"value is set, and strategy: {m.strategy} shows states that the sampler did not go"
            " through, which have no next step; use strategy: trace, or value: null.",
        ),
        (m.value is not None and not by_token, f"value {one_term}"),
        (
            m.value is not None and m.scale_rewards == "softmax",
            "scale_rewards is softmax, which makes weights of likelihoods and no outcome that a"
            " value could predict; use group, batch or none, or value: null.",
        ),
        (
            m.baseline != "group" and (completed or m.scale_rewards == "softmax"),
            f"baseline is {m.baseline}, and completion_value and scale_rewards: softmax compare"
            " within the group; use baseline: group.",
        ),
        (
            completed and m.value is not None,
            "completion_value is set, and value as well; both give advantages per token, set one of"
            " them to null.",
        ),
        (completed and not by_token, f"completion_value {one_term}"),
        (
            completed and m.scale_rewards not in ("batch", "none"),
            f"scale_rewards is {m.scale_rewards}, and completion_value credits differences of"
            " rewards, which may be far larger than those of a group's outcomes; use batch or none,"
            " or completion_value: null.",
        ),
    ]
    return [message for holds, message in found if holds]
