"""Settings of a method: a row of the table, from a preset and what differs from it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import OmegaConf

from mmrl.algorithms import aggregation, ratios
from mmrl.algorithms.aggregation import AGGREGATIONS
from mmrl.algorithms.combinations import check_combination
from mmrl.algorithms.kl import KL
from mmrl.algorithms.ratios import RATIO_LEVELS
from mmrl.algorithms.value_config import ValueConfig
from mmrl.config import ConfigError, check, check_choice, merge
from mmrl.config.shipped import configs
from mmrl.estimators import BOUNDS, MASKS, Draw, View, bounds

if TYPE_CHECKING:
    from torch import Generator, Tensor

SCALES = ("group", "batch", "none", "softmax")
POSITION_TERMS = ("none", "plackett_luce")


@dataclass(kw_only=True)
class AlgorithmConfig:
    """One row of the table."""

    choices: ClassVar = {
        "mask": MASKS,
        "bound": BOUNDS,
        "ratio_level": RATIO_LEVELS,
        "aggregation": AGGREGATIONS,
        "kl": KL,
        "kl_to": ("reference", "old"),
        "kl_level": ("token", "bound"),
        "scale_rewards": SCALES,
        "position_term": POSITION_TERMS,
    }
    presets: ClassVar = "algorithm"
    """Folder of `configs/` with values of `name`."""

    name: str = "mask_grpo"
    """Preset the other columns start from."""
    mask: str = "random"
    """Mask strategy, see `mmrl.estimators.masks`."""
    num_draws: int = 1
    """Mask draws per inner iteration; pairs for complementary, nodes for quadrature."""
    min_mask_rate: float = 0.0
    """Lowest share of hidden positions, where the share varies."""
    max_mask_rate: float = 1.0
    """Highest share of hidden positions, where the share is drawn."""
    prompt_mask_rate: float = 0.0
    """Share of prompt tokens hidden as well; they are never scored."""
    include_full: bool = False
    """Whether a complementary pair comes with a pass that hides everything."""
    block_size: int | None = None
    """Response positions per block (mask: blockwise, ratio_level: block, position_term)."""
    slice_size: int = 1
    """Recorded steps scored in one pass (mask: trace), or positions (mask: left_to_right)."""
    num_slices: int | None = None
    """Cut the trace, or the positions, into so many slices instead."""
    sampled_slices: int | None = None
    """Score so many slices of a rollout, drawn at random; null scores all."""
    position_term: str = "none"
    """Whether the choice of positions is scored too: none or plackett_luce (mask: trace)."""
    bound: str = "token"
    """What is formed from the log-probs, see `mmrl.estimators.bounds`."""
    eubo_beta: float = 1.5
    """Exponent of the upper bound (bound: eubo, sandwich)."""
    eubo_weight: float = 0.5
    """Share of the upper bound where the advantage is negative (bound: sandwich)."""
    ratio_level: str = "token"
    """Over what the importance ratio is formed, see `mmrl.algorithms.ratios`."""
    aggregation: str = "grpo"
    """How entries are averaged, see `mmrl.algorithms.aggregation`."""
    top_entropy_quantile: float = 1.0
    """Share of a rollout's scored tokens that are trained on: those with the highest entropy under
    the policy as it sampled, see `mmrl.estimators.entropy`; 1 trains on all."""
    num_iterations: int = 1
    """Inner iterations per batch of rollouts, one optimiser step each."""
    epsilon: float = 0.2
    """Lower clip range of the ratio (of its logarithm for aggregation: gmpo)."""
    epsilon_high: float | None = None
    """Upper clip range; null equals `epsilon`."""
    beta: float = 0.0
    """Weight of the KL; 0 needs no reference policy."""
    kl: str = "k3"
    """KL estimator: k1, k2 or k3."""
    kl_to: str = "reference"
    """Policy the KL is taken to: reference, or old (as it was when it sampled)."""
    kl_level: str = "token"
    """Of what the KL is taken: of every scored token, or of the values of the bound."""
    scale_rewards: str = "group"
    """Whose deviation divides the advantages: group, batch or none; or softmax (wd1)."""
    cfg_scale: float = 0.0
    """Guidance while scoring; 0 scores the conditional policy, whatever the sampler used."""
    temperature: float = 1.0
    """Divides the logits while scoring."""
    value: ValueConfig | None = None
    """Value model that makes advantages per token (mask: trace); null for none."""

    def __post_init__(self) -> None:
        for key, allowed in self.choices.items():
            check_choice(f"algorithm.{key}", getattr(self, key), allowed)
        check(self.num_iterations >= 1, "algorithm.num_iterations", self.num_iterations, ">= 1")
        check(self.num_draws >= 1, "algorithm.num_draws", self.num_draws, "at least 1")
        rate = self.min_mask_rate
        check(0 <= rate <= 1, "algorithm.min_mask_rate", rate, "between 0 and 1")
        high = self.max_mask_rate
        allowed = f"above 0 and between {rate:g} and 1"
        check(0 < high <= 1 and rate <= high, "algorithm.max_mask_rate", high, allowed)
        noise = self.prompt_mask_rate
        check(0 <= noise <= 1, "algorithm.prompt_mask_rate", noise, "between 0 and 1")
        for key in ("block_size", "slice_size", "num_slices", "sampled_slices"):
            number = getattr(self, key)
            check(number is None or number >= 1, f"algorithm.{key}", number, "at least 1")
        check(self.eubo_beta >= 1, "algorithm.eubo_beta", self.eubo_beta, "at least 1")
        share = self.eubo_weight
        check(0 <= share <= 1, "algorithm.eubo_weight", share, "between 0 and 1")
        quantile = self.top_entropy_quantile
        allowed = "above 0 and at most 1"
        check(0 < quantile <= 1, "algorithm.top_entropy_quantile", quantile, allowed)
        check(self.epsilon >= 0, "algorithm.epsilon", self.epsilon, "0 or more")
        check(self.upper_epsilon >= 0, "algorithm.epsilon_high", self.epsilon_high, "0 or more")
        check(self.beta >= 0, "algorithm.beta", self.beta, "0 or more")
        check(self.temperature > 0, "algorithm.temperature", self.temperature, "above 0")
        check(self.cfg_scale >= 0, "algorithm.cfg_scale", self.cfg_scale, "0 or more")
        check_combination(self)

    def draw(self, iteration: int, generators: Sequence[Generator] = ()) -> Draw:
        """What the mask strategy is given in an inner iteration."""
        return Draw(
            iteration=iteration,
            num_iterations=self.num_iterations,
            num_draws=self.num_draws,
            min_mask_rate=self.min_mask_rate,
            generators=generators,
            max_mask_rate=self.max_mask_rate,
            prompt_mask_rate=self.prompt_mask_rate,
            include_full=self.include_full,
            block_size=self.block_size,
            slice_size=self.slice_size,
            num_slices=self.num_slices,
            sampled_slices=self.sampled_slices,
            position=self.position_term != "none",
        )

    def view(self, advantages: Tensor | None = None) -> View:
        """What the bound is given besides the log-probs."""
        return View(advantages, self.eubo_beta, self.eubo_weight)

    @property
    def pass_by_pass(self) -> bool:
        """Whether the loss is a sum over passes, so that its gradient is taken one by one."""
        return (
            self.bound in bounds.PASS_BY_PASS
            and self.ratio_level in ratios.PASS_BY_PASS
            and self.aggregation not in aggregation.ACROSS_PASSES
        )

    @property
    def needs_old(self) -> bool:
        """Whether the policy that sampled is scored: for a ratio or the KL, once it has moved, and
        always where a value head reads its hidden states."""
        moved = self.num_iterations > 1 and (
            self.ratio_level != "none" or (self.beta > 0 and self.kl_to == "old")
        )
        return moved or (self.value is not None and self.value.backbone == "shared")

    @property
    def needs_reference(self) -> bool:
        """Whether the reference policy is scored."""
        return self.beta > 0 and self.kl_to == "reference"

    @property
    def upper_epsilon(self) -> float:
        """The upper clip range."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high

    @property
    def value_epsilon(self) -> float:
        """The clip range of values."""
        reach = None if self.value is None else self.value.cliprange_value
        return self.epsilon if reach is None else reach


def load_algorithm(options: Mapping[str, Any], where: str = "algorithm") -> AlgorithmConfig:
    """The preset named by `options["name"]` with the other options on top.

    Raises:
        ConfigError: an unknown preset, option or column value.
    """
    presets = {path.stem: path for path in sorted(configs().glob("algorithm/*.yaml"))}
    name = options.get("name", "mask_grpo")
    check_choice(f"{where}.name", name, presets)
    return deepcopy(_merged(presets[name], json.dumps(dict(options), default=_plain), where))


def _plain(value: Any) -> Any:
    """What JSON takes in the place of a section that is an OmegaConf container or a dataclass."""
    return OmegaConf.to_container(value if OmegaConf.is_config(value) else OmegaConf.create(value))


@functools.cache
def _merged(preset: Path, options: str, where: str) -> AlgorithmConfig:
    """A preset with the options, as JSON, on top. Kept, because a run asks many times, and merging
    is slow."""
    try:
        return merge(AlgorithmConfig, OmegaConf.load(preset), json.loads(options), where=where)
    except ConfigError as error:
        message = str(error)
        if not message.startswith("algorithm."):
            raise
        raise ConfigError(where + message.removeprefix("algorithm")) from error
