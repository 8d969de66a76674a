"""Settings of advantages per token: from a value model, or from completions in one pass."""

from dataclasses import dataclass
from typing import ClassVar

from mmrl.config import check, check_choice


@dataclass(kw_only=True)
class ValueConfig:
    """Settings of the value model; TRL's names where PPO has them there."""

    choices: ClassVar = {"backbone": ("shared", "copy")}

    backbone: str = "copy"
    """What the head reads: the hidden states of the policy (shared), or of a copy of it."""
    gamma: float = 1.0
    """Discount per denoising step (per slice, where slices hold several)."""
    lam: float = 1.0
    """Lambda of generalised advantage estimation."""
    cliprange_value: float | None = None
    """How far a value may move from its old one; null takes `epsilon` of the ratio."""
    vf_coef: float = 0.1
    """Weight of the value loss beside the policy's (backbone: shared)."""
    learning_rate_scale: float = 1.0
    """Factor on the learning rate, for the head and for a copied backbone."""

    def __post_init__(self) -> None:
        check_choice("algorithm.value.backbone", self.backbone, self.choices["backbone"])
        for key in ("gamma", "lam"):
            share = getattr(self, key)
            check(0 <= share <= 1, f"algorithm.value.{key}", share, "between 0 and 1")
        reach = self.cliprange_value
        allowed = "null or 0 or more"
        check(reach is None or reach >= 0, "algorithm.value.cliprange_value", reach, allowed)
        check(self.vf_coef >= 0, "algorithm.value.vf_coef", self.vf_coef, "0 or more")
        scale = self.learning_rate_scale
        check(scale > 0, "algorithm.value.learning_rate_scale", scale, "above 0")


@dataclass(kw_only=True)
class CompletionValueConfig:
    """Settings of credit by completions in one pass, see `mmrl.algorithms.completion_value`."""

    slices: int = 8
    """Parts K of about equal size in which the trace of a rollout is credited; the rewards score
    K - 1 completions of each rollout beside the rollout itself."""
    lam: float = 0.0
    """Lambda of generalised advantage estimation: 0 credits a slice with what it changed, 1 with
    all that follows."""

    def __post_init__(self) -> None:
        key = "algorithm.completion_value"
        check(self.slices >= 2, f"{key}.slices", self.slices, "at least 2")
        check(0 <= self.lam <= 1, f"{key}.lam", self.lam, "between 0 and 1")
