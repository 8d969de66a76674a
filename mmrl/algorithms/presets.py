"""The preset of a method with what differs from it, and which columns cannot go together."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from mmrl.algorithms.algorithm_config import AlgorithmConfig
from mmrl.config import ConfigError, check, check_choice, merge, to_plain
from mmrl.config.options import unread_options
from mmrl.config.yaml_file import configs
from mmrl.estimators import MASKS

DEFAULT_PRESET = "mask_grpo"
RESOLVED_FROM = "resolved_from"
"""Key of a whole row that names its preset, see `mmrl.algorithms.written_rows`."""


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
    key = _key(options, where)
    if key not in _LOADED:
        _LOADED[key] = _load(presets[name], json.loads(key[0]), where)
    return deepcopy(_LOADED[key])


def write_row(row: AlgorithmConfig, where: str) -> dict[str, Any]:
    """Every column of a loaded row and its origin, as options that give the same row again."""
    options = {**to_plain(row), RESOLVED_FROM: row.name}
    _LOADED[_key(options, where)] = row
    return options


_LOADED: dict[tuple[str, str, Path], AlgorithmConfig] = {}
"""Rows by options, key of the section and folder of presets: a run asks many times, and merging is
slow."""


def _key(options: Mapping[str, Any], where: str) -> tuple[str, str, Path]:
    stated = {key: value for key, value in options.items() if key != RESOLVED_FROM}
    text = json.dumps({"name": DEFAULT_PRESET, **stated}, default=_to_json)
    return text, where, configs()


def _to_json(value: Any) -> Any:
    """What JSON takes in the place of a section that is an OmegaConf container or a dataclass."""
    return OmegaConf.to_container(value if OmegaConf.is_config(value) else OmegaConf.create(value))


def _load(preset: Path, options: Mapping[str, Any], where: str) -> AlgorithmConfig:
    """A preset with the options on top."""
    try:
        row = merge(AlgorithmConfig, OmegaConf.load(preset), options, where=where)
        for message in find_conflicts(row):
            raise ConfigError(f"algorithm.{message}")
    except ConfigError as error:
        message = str(error)
        if not message.startswith("algorithm."):
            raise
        raise ConfigError(where + message.removeprefix("algorithm")) from error
    return row


def find_conflicts(row: AlgorithmConfig) -> Iterator[str]:
    """Columns that cannot go together: messages, each beginning with the key to change."""
    for check_columns in (_masks, _ratios, _entropies, _values, _completions):
        yield from check_columns(row)


def find_unread(row: AlgorithmConfig) -> list[str]:
    """Settings that were changed and that no column of the row ever reads.

    They are no error: a row starts from a preset, and may have them from there.
    """
    defaults = {field.name: field.default for field in fields(row)}
    return unread_options(row) + [
        f"{key} is {getattr(row, key)}, and {why}"
        for key, why in _read_by_nothing(row)
        if getattr(row, key) != defaults[key]
    ]


def _read_by_nothing(row: AlgorithmConfig) -> Iterator[tuple[str, str]]:
    """Settings of what the row leaves out: blocks, the clip and the KL."""
    if not row.follows_blocks:
        yield (
            "block_size",
            f"mask: {row.mask} and ratio_level: {row.ratio_level} do not go by blocks",
        )
    if row.ratio_level == "none" or row.bound == "additive":
        left_out = "ratio_level: none" if row.ratio_level == "none" else "bound: additive"
        yield from ((key, f"{left_out} clips no ratio") for key in ("epsilon_high", "delta"))
        if row.value is None or row.value.cliprange_value is not None:
            yield "epsilon", f"{left_out} clips no ratio"
    if row.beta == 0:
        yield from ((key, "beta: 0 takes no KL") for key in ("kl", "kl_to", "kl_level"))


def _masks(row: AlgorithmConfig) -> Iterator[str]:
    strategy = MASKS[row.mask]
    if strategy.needs_blocks and row.block_size is None:
        yield f"block_size is null, and mask: {row.mask} needs blocks; give that of the sampler."
    if strategy.ordered and row.num_draws != 1:
        yield (
            f"num_draws is {row.num_draws}, and mask: {row.mask} follows an order instead of"
            " drawing masks; leave it at 1 and set slice_size, num_slices or sampled_slices."
        )
    if strategy.ordered and row.prompt_mask_rate > 0:
        yield (
            f"prompt_mask_rate is {row.prompt_mask_rate:g}, and mask: {row.mask} scores the states"
            " in which tokens were written, with the whole prompt; set it to 0."
        )


def _ratios(row: AlgorithmConfig) -> Iterator[str]:
    if row.ratio_level == "block" and row.block_size is None:
        yield "block_size is null, and ratio_level: block needs blocks; give that of the sampler."
    if row.ratio_level == "block" and row.bound != "token":
        yield (
            f"ratio_level is block, and bound: {row.bound} has no value per position; use bound:"
            " token, or ratio_level: sequence."
        )
    if row.aggregation == "gmpo" and (row.ratio_level, row.bound) != ("token", "token"):
        yield (
            "aggregation is gmpo, which clips token by token before it takes the geometric mean,"
            f" and the ratio is of ratio_level: {row.ratio_level} over bound: {row.bound}; use"
            " aggregation: gspo, or ratio_level: token with bound: token."
        )
    if row.aggregation == "gspo" and row.ratio_level == "none":
        yield (
            "aggregation is gspo, and ratio_level: none forms no ratio to clip; use aggregation:"
            " grpo."
        )
    if row.bound == "additive" and row.ratio_level not in ("token", "step"):
        yield (
            f"ratio_level is {row.ratio_level}, and bound: additive needs a ratio per pass, or its"
            " passes cannot be trained one by one; use ratio_level: step."
        )
    if row.bound == "additive" and row.aggregation not in ("grpo", "dapo", "dr_grpo"):
        yield (
            f"aggregation is {row.aggregation}, and bound: additive is a sum over passes; use"
            " aggregation: grpo."
        )


def _entropies(row: AlgorithmConfig) -> Iterator[str]:
    if row.top_entropy_quantile == 1:
        return
    of_tokens = row.bound == "token" and row.ratio_level in ("token", "none")
    if not of_tokens or not row.pass_by_pass:
        yield (
            f"top_entropy_quantile is {row.top_entropy_quantile:g}, and bound: {row.bound} with"
            f" ratio_level: {row.ratio_level} and aggregation: {row.aggregation} has terms of"
            " several tokens, which cannot be left out one by one; use bound: token, ratio_level:"
            " token or none, and aggregation: grpo, dapo, dr_grpo or gspo; or"
            " top_entropy_quantile: 1."
        )
    if row.value is not None:
        yield (
            f"top_entropy_quantile is {row.top_entropy_quantile:g}, and value needs all tokens of"
            " a rollout to carry its reward back; set top_entropy_quantile to 1, or value to null."
        )


def _values(row: AlgorithmConfig) -> Iterator[str]:
    if row.value is None:
        return
    if not MASKS[row.mask].reads_trace:
        yield (
            f"value is set, and mask: {row.mask} hides tokens in states that the sampler did not go"
            " through, which have no next step; use mask: trace, or value: null."
        )
    if row.sampled_slices is not None:
        yield (
            f"sampled_slices is {row.sampled_slices}, and value needs all slices of a rollout to"
            " carry its reward back; set sampled_slices to null, or value to null."
        )
    yield from _token_advantages(row, "value")
    if row.scale_rewards == "softmax":
        yield (
            "scale_rewards is softmax, which makes weights of likelihoods and no outcome that a"
            " value could predict; use group, batch or none, or value: null."
        )


def _completions(row: AlgorithmConfig) -> Iterator[str]:
    if row.completion_value is None:
        return
    if row.value is not None:
        yield (
            "completion_value is set, and value as well; both give advantages per token, set one of"
            " them to null."
        )
    yield from _token_advantages(row, "completion_value")
    if row.scale_rewards not in ("batch", "none"):
        yield (
            f"scale_rewards is {row.scale_rewards}, and completion_value credits differences of"
            " rewards, which may be far larger than those of a group's outcomes; use batch or none,"
            " or completion_value: null."
        )


def _token_advantages(row: AlgorithmConfig, key: str) -> Iterator[str]:
    """What `key` needs because it gives every token its own advantage."""
    if row.bound != "token" or not row.pass_by_pass:
        yield (
            f"{key} is set, and bound: {row.bound} with ratio_level: {row.ratio_level} and"
            f" aggregation: {row.aggregation} has one term for tokens whose advantages differ; use"
            f" bound: token, ratio_level: token or step, aggregation: grpo; or {key}: null."
        )
