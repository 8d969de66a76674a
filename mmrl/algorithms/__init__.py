"""Algorithms: every published method is a row of one table.

    mask strategy x bound x ratio level x aggregation (+ KL, clip range, advantage scaling)

A preset in `configs/algorithm/<name>.yaml` is such a row with its paper and its deviations; a run
names it by `algorithm.name` and may override any column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from mmrl.algorithms.advantages import group_advantages, group_statistics
from mmrl.algorithms.aggregation import AGGREGATIONS, BatchSize
from mmrl.algorithms.kl import KL
from mmrl.algorithms.loss import LossInputs, policy_loss
from mmrl.algorithms.ratios import RATIO_LEVELS
from mmrl.config import ConfigError, check, check_choice, merge
from mmrl.estimators import BOUNDS, MASKS

__all__ = [
    "AlgorithmConfig",
    "BatchSize",
    "LossInputs",
    "group_advantages",
    "group_statistics",
    "load_algorithm",
    "policy_loss",
]

PRESETS = Path(__file__).resolve().parents[2] / "configs" / "algorithm"
SCALES = ("group", "batch", "none")


@dataclass(kw_only=True)
class AlgorithmConfig:
    """One row of the table."""

    name: str = "mask_grpo"
    """Preset the other columns start from."""
    mask: str = "random"
    """Mask strategy, see `mmrl.estimators.masks`."""
    num_draws: int = 1
    """Mask draws K per inner iteration."""
    min_mask_rate: float = 0.0
    """Lowest share of hidden positions (mask: random)."""
    bound: str = "token"
    """What is formed from the log-probs, see `mmrl.estimators.bounds`."""
    ratio_level: str = "token"
    """Over what the importance ratio is formed, see `mmrl.algorithms.ratios`."""
    aggregation: str = "grpo"
    """How entries are averaged, see `mmrl.algorithms.aggregation`."""
    num_iterations: int = 1
    """Inner iterations per batch of rollouts, one optimiser step each."""
    epsilon: float = 0.2
    """Lower clip range of the ratio."""
    epsilon_high: float | None = None
    """Upper clip range; null equals `epsilon`."""
    beta: float = 0.0
    """Weight of the KL to the reference policy; 0 needs none."""
    kl: str = "k3"
    """KL estimator: k1, k2 or k3."""
    scale_rewards: str = "group"
    """Whose deviation divides the advantages: group, batch or none."""
    cfg_scale: float = 0.0
    """Guidance while scoring; 0 scores the conditional policy, whatever the sampler used."""
    temperature: float = 1.0
    """Divides the logits while scoring."""

    def __post_init__(self) -> None:
        for key, allowed in _CHOICES.items():
            check_choice(f"algorithm.{key}", getattr(self, key), allowed)
        check(self.num_iterations >= 1, "algorithm.num_iterations", self.num_iterations, ">= 1")
        check(self.num_draws >= 1, "algorithm.num_draws", self.num_draws, "at least 1")
        rate = self.min_mask_rate
        check(0 <= rate <= 1, "algorithm.min_mask_rate", rate, "between 0 and 1")
        check(self.epsilon >= 0, "algorithm.epsilon", self.epsilon, "0 or more")
        check(self.upper_epsilon >= 0, "algorithm.epsilon_high", self.epsilon_high, "0 or more")
        check(self.beta >= 0, "algorithm.beta", self.beta, "0 or more")
        check(self.temperature > 0, "algorithm.temperature", self.temperature, "above 0")
        check(self.cfg_scale >= 0, "algorithm.cfg_scale", self.cfg_scale, "0 or more")

    @property
    def upper_epsilon(self) -> float:
        """The upper clip range."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high


_CHOICES: dict[str, Any] = {
    "mask": MASKS,
    "bound": BOUNDS,
    "ratio_level": RATIO_LEVELS,
    "aggregation": AGGREGATIONS,
    "kl": KL,
    "scale_rewards": SCALES,
}


def load_algorithm(options: Mapping[str, Any], where: str = "algorithm") -> AlgorithmConfig:
    """The preset named by `options["name"]` with the other options on top.

    Raises:
        ConfigError: an unknown preset, option or column value.
    """
    presets = {path.stem: path for path in sorted(PRESETS.glob("*.yaml"))}
    name = options.get("name", "mask_grpo")
    check_choice(f"{where}.name", name, presets)
    layers = OmegaConf.load(presets[name]), OmegaConf.create(dict(options))
    try:
        return merge(AlgorithmConfig, *layers, where=where)
    except ConfigError as error:
        message = str(error)
        if not message.startswith("algorithm."):
            raise
        raise ConfigError(where + message.removeprefix("algorithm")) from error
