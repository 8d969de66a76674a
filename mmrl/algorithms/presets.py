"""The preset of a method with what differs from it, and which columns cannot go together."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from mmrl.algorithms.algorithm_config import AlgorithmConfig
from mmrl.config import ConfigError, check, check_choice, merge, to_plain
from mmrl.config.yaml_file import configs
from mmrl.estimators import MASKS

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
    stated = {key: value for key, value in options.items() if key != RESOLVED_FROM}
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
        method = merge(AlgorithmConfig, OmegaConf.load(preset), json.loads(options), where=where)
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
    return [message.format(method) for holds, message in CONFLICTS if holds(method)]


def _by_token(method: AlgorithmConfig) -> bool:
    """Whether every token of a pass has a term that can have its own advantage."""
    return method.bound == "token" and method.pass_by_pass


_ONE_TERM = (
    "%s is set, and bound: {0.bound} with ratio_level: {0.ratio_level} and aggregation:"
    " {0.aggregation} has one term for tokens whose advantages differ; use bound: token,"
    " ratio_level: token or step, aggregation: grpo; or %s: null."
)

CONFLICTS: list[tuple[Callable[[AlgorithmConfig], bool], str]] = [
    (
        lambda method: MASKS[method.mask].needs_blocks and method.block_size is None,
        "block_size is null, and mask: {0.mask} needs blocks; give that of the sampler.",
    ),
    (
        lambda method: MASKS[method.mask].ordered and method.num_draws != 1,
        "num_draws is {0.num_draws}, and mask: {0.mask} follows an order instead of drawing masks;"
        " leave it at 1 and set slice_size or num_slices.",
    ),
    (
        lambda method: MASKS[method.mask].ordered and method.prompt_mask_rate > 0,
        "prompt_mask_rate is {0.prompt_mask_rate:g}, and mask: {0.mask} scores the states in which"
        " tokens were written, with the whole prompt; set it to 0.",
    ),
    (
        lambda method: method.ratio_level == "block" and method.block_size is None,
        "block_size is null, and ratio_level: block needs blocks; give that of the sampler.",
    ),
    (
        lambda method: method.ratio_level == "block" and method.bound != "token",
        "ratio_level is block, and bound: {0.bound} has no value per position; use bound: token,"
        " or ratio_level: sequence.",
    ),
    (
        lambda method: (
            method.aggregation == "gmpo" and (method.ratio_level, method.bound) != ("token",) * 2
        ),
        "aggregation is gmpo, which clips token by token before it takes the geometric mean, and"
        " the ratio is of ratio_level: {0.ratio_level} over bound: {0.bound}; use aggregation:"
        " gspo, or ratio_level: token with bound: token.",
    ),
    (
        lambda method: method.aggregation == "gspo" and method.ratio_level == "none",
        "aggregation is gspo, and ratio_level: none forms no ratio to clip; use aggregation: grpo.",
    ),
    (
        lambda method: method.bound == "additive" and method.ratio_level not in ("token", "step"),
        "ratio_level is {0.ratio_level}, and bound: additive needs a ratio per pass, or its passes"
        " cannot be trained one by one; use ratio_level: step.",
    ),
    (
        lambda method: (
            method.bound == "additive" and method.aggregation not in ("grpo", "dapo", "dr_grpo")
        ),
        "aggregation is {0.aggregation}, and bound: additive is a sum over passes; use"
        " aggregation: grpo.",
    ),
    (
        lambda method: (
            method.top_entropy_quantile < 1
            and not (_by_token(method) and method.ratio_level in ("token", "none"))
        ),
        "top_entropy_quantile is {0.top_entropy_quantile:g}, and bound: {0.bound} with ratio_level:"
        " {0.ratio_level} and aggregation: {0.aggregation} has terms of several tokens, which"
        " cannot be left out one by one; use bound: token, ratio_level: token or none, and"
        " aggregation: grpo, dapo, dr_grpo or gspo; or top_entropy_quantile: 1.",
    ),
    (
        lambda method: method.top_entropy_quantile < 1 and method.value is not None,
        "top_entropy_quantile is {0.top_entropy_quantile:g}, and value needs all tokens of a"
        " rollout to carry its reward back; set top_entropy_quantile to 1, or value to null.",
    ),
    (
        lambda method: method.value is not None and not MASKS[method.mask].reads_trace,
        "value is set, and mask: {0.mask} hides tokens in states that the sampler did not go"
        " through, which have no next step; use mask: trace, or value: null.",
    ),
    (
        lambda method: method.value is not None and not _by_token(method),
        _ONE_TERM % (("value",) * 2),
    ),
    (
        lambda method: method.value is not None and method.scale_rewards == "softmax",
        "scale_rewards is softmax, which makes weights of likelihoods and no outcome that a value"
        " could predict; use group, batch or none, or value: null.",
    ),
    (
        lambda method: method.completion_value is not None and method.value is not None,
        "completion_value is set, and value as well; both give advantages per token, set one of"
        " them to null.",
    ),
    (
        lambda method: method.completion_value is not None and not _by_token(method),
        _ONE_TERM % (("completion_value",) * 2),
    ),
    (
        lambda method: (
            method.completion_value is not None and method.scale_rewards not in ("batch", "none")
        ),
        "scale_rewards is {0.scale_rewards}, and completion_value credits differences of rewards,"
        " which may be far larger than those of a group's outcomes; use batch or none, or"
        " completion_value: null.",
    ),
]
"""Columns that cannot go together: when, and what is said; each begins with the key to change."""
