"""The preset of a method with what differs from it, and which columns cannot go together."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from mmrl.algorithms.aggregation import AGGREGATIONS
from mmrl.algorithms.algorithm_config import AlgorithmConfig
from mmrl.algorithms.contrasts import CONTRASTS
from mmrl.algorithms.ratios import GAUSSIAN_KL, KL, PREDICTION_KL, RATIO_LEVELS
from mmrl.algorithms.surrogates import SURROGATES
from mmrl.config import ConfigError, Settings, check, check_choice, merge, to_plain
from mmrl.config.chosen import keep_read
from mmrl.config.yaml_file import configs
from mmrl.generation.kinds import STRATEGIES
from mmrl.generation.masked.kind import RENAMED

DEFAULT_PRESET = "mask_grpo"
RESOLVED_FROM = "resolved_from"
"""Key of a whole row of the table that names its preset."""


def load_algorithm(options: Mapping[str, Any], where: str = "algorithm") -> AlgorithmConfig:
    """The preset named by `options["name"]` with the other options on top. Raises ConfigError: an
    unknown preset, option or column value, columns that cannot go together, or those of one preset
    under the name of another."""
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
    """Columns that cannot go together: messages, each beginning with a key to change."""
    found = []
    if method.kl_target is not None and method.beta == 0:
        found.append("beta is 0, and kl_target changes it from where it starts; set it above 0.")
    if CONTRASTS[method.contrast].by_limit and method.adv_clip_max is None:
        found.append(f"adv_clip_max is null, and contrast: {method.contrast} divides by it.")
    if method.follows_blocks and method.block_size is None:
        found.append(
            f"block_size is null, and strategy: {method.strategy} with ratio_level:"
            f" {method.ratio_level} needs blocks; give that of the sampler."
        )
    of = _of_strategy, _of_contrast, _of_terms, _of_credit
    for key, why, columns in (need for each in of for need in each(method)):
        for column, allowed in columns.items():
            value = getattr(method, column, allowed[0])  # only some strategies have an option
            if value not in allowed:
                use = f"use {column}: {' or '.join(map(_show, allowed))}, or change {key}."
                reason = f"{key}: {_show(getattr(method, key))} {why}"
                found.append(f"{column} is {_show(value)}, and {reason}; {use}")
    return found


Need = tuple[str, str, Mapping[str, Sequence[Any]]]
"""A column, what its value does, and the values of other columns that go with that."""


def _of_strategy(m: AlgorithmConfig) -> Iterator[Need]:
    strategy = STRATEGIES[m.strategy]
    if strategy.ordered:
        why = "follows an order instead of drawing, which slice_size or num_slices cuts"
        yield "strategy", why, {"num_draws": [1]}
        yield "strategy", "shows states in which tokens were written", {"prompt_mask_rate": [0]}
    if strategy.of_steps or strategy.of_predictions:
        needs = {"temperature": [1], "top_entropy_quantile": [1]}
        yield "strategy", "scores latents, which have no temperature, whose entropy is given", needs
    if not strategy.of_steps:
        compared = {
            "kl": [*PREDICTION_KL] if strategy.of_predictions else [*KL],
            "surrogate": [n for n, s in SURROGATES.items() if not s.of_steps],
        }
        if m.beta == 0 == m.beta_old:
            del compared["kl"]
        what = "velocities" if strategy.of_predictions else "tokens"
        yield "strategy", f"scores {what} and no means of denoising steps", compared
        why = "may show other states than those in which the sampler acted"
        yield "strategy", why, {"old_logprobs": ["replay"]}
    elif m.beta > 0 or m.beta_old > 0:
        yield "strategy", "scores denoising steps", {"kl": [*KL, *GAUSSIAN_KL]}
    if m.kl not in KL:
        yield "kl", "is of latents", {"kl_level": ["token"]}
    compared = not (strategy.of_steps or strategy.reads_trace or strategy.of_finished)
    fitting = [
        name
        for name, each in CONTRASTS.items()
        if each.terms is None or (compared and each.of_latents == strategy.of_predictions)
    ]
    what = "predictions of latents" if strategy.of_predictions else "no predictions of latents"
    if strategy.of_finished:
        what = "latents to the rewards, which have the gradient"
    yield "strategy", f"shows {what}", {"contrast": fitting}
    if not strategy.reads_trace:
        why = "shows states that the sampler did not go through, which have no next step"
        yield "strategy", why, {"value": [None]}


def _of_contrast(m: AlgorithmConfig) -> Iterator[Need]:
    if m.has_ratio:
        return
    key, what = "contrast", "compares predictions"
    if m.follows_rewards:
        key, what = "strategy", "follows the rewards"
    needs = {"bound": ["token"], "ratio_level": ["token"], "surrogate": ["clipped"]}
    plain = [n for n, each in AGGREGATIONS.items() if each.surrogate is None and not each.group]
    needs |= {"delta": [None], "step_weights": [None], "aggregation": plain}
    yield key, f"{what} in the place of a ratio", needs
    if m.group is not None:
        why = "is of whole groups"
        yield "contrast", why, {"value": [None], "completion_value": [None]}


def _of_terms(m: AlgorithmConfig) -> Iterator[Need]:
    sums = ["grpo", "dapo", "dr_grpo"]
    aggregations = [name for name, each in AGGREGATIONS.items() if not each.across_passes]
    surrogates = [name for name, each in SURROGATES.items() if not each.by_action]
    by_token = {"aggregation": aggregations, "surrogate": surrogates}
    credit = {"value": [None], "completion_value": [None]}
    if m.bound == "additive":
        needs = {"ratio_level": ["token", "step"], "aggregation": sums, "surrogate": ["clipped"]}
        yield "bound", "has its own surrogate, a sum over passes trained one by one", needs
    if m.bound != "token":
        levels = [name for name in RATIO_LEVELS if name != "block"]
        needs = {**by_token, **credit, "ratio_level": levels, "step_weights": [None]}
        why = "has no value of every token or step"
        yield "bound", why, {**needs, "top_entropy_quantile": [1]}
    if m.ratio_level != "token":
        yield "ratio_level", "has no ratio of every token or step", by_token
    if m.ratio_level not in ("token", "none"):
        why = "has terms of several tokens, which cannot be left out one by one"
        yield "ratio_level", why, {"top_entropy_quantile": [1]}
    if not RATIO_LEVELS[m.ratio_level].pass_by_pass:
        yield "ratio_level", "has one term for tokens whose advantages differ", credit
    if m.ratio_level == "none":
        yield "ratio_level", "forms no ratio to clip", {"aggregation": sums}
    if m.aggregation == "gmpo":
        needs = {**credit, "surrogate": ["clipped"], "top_entropy_quantile": [1]}
        yield "aggregation", "has its own surrogate, one term for all tokens of a row", needs
    if AGGREGATIONS[m.aggregation].group is not None:
        needs = {"ratio_level": ["sequence"], "surrogate": ["weighted"]}
        yield "aggregation", "divides by the weights of a group's rollouts", needs
    if m.surrogate != "clipped":
        yield "surrogate", "has no ratio that it could clip", {"delta": [None]}


def _of_credit(m: AlgorithmConfig) -> Iterator[Need]:
    outcomes = {
        "deviation": ["sample"],
        "multi_objective_aggregation": ["sum_then_normalize"],
        "adv_clip_max": [None],
    }
    why = "makes others of the advantages of outcomes"
    if m.value is not None:
        scales = {"scale_rewards": ["group", "chunk", "batch", "none"]}
        yield "value", why, {**outcomes, **scales, "completion_value": [None]}
        needs = {"top_entropy_quantile": [1]}
        yield "value", "needs all tokens of a rollout to carry its reward back", needs
    if m.completion_value is not None:
        yield "completion_value", why, outcomes
        needs = {"scale_rewards": ["batch", "none"], "baseline": ["group"]}
        why = "compares differences of rewards within the group, which may be large"
        yield "completion_value", why, needs
    if m.scale_rewards == "softmax":
        yield "scale_rewards", "compares within the group", {"baseline": ["group"]}
    if m.old_logprobs == "rollout":
        why, plain = "records no means", [n for n, s in SURROGATES.items() if not s.of_steps]
        kinds = {"kl": [*KL]} if m.beta > 0 and m.kl_to == "old" else {}
        yield "old_logprobs", why, {"surrogate": plain, **kinds}


def _show(value: Any) -> str:
    """A value as a YAML has it."""
    return "null" if value is None else "given" if isinstance(value, Settings) else f"{value}"
