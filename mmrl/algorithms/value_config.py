"""Settings of advantages per token: from a value model, or from completions in one pass."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mmrl.config import Settings, above, at_least


@dataclass(kw_only=True)
class ValueConfig(Settings):
    """Settings of the value model; TRL's names where PPO has them there."""

    where: ClassVar[str] = "algorithm.value"

    backbone: Literal["shared", "copy"] = "copy"
    """What the head reads: the hidden states of the policy (shared), or of a copy of it."""
    gamma: Annotated[float, at_least(0, up_to=1)] = 1.0
    """Discount per denoising step (per slice, where slices hold several)."""
    lam: Annotated[float, at_least(0, up_to=1)] = 1.0
    """Lambda of generalised advantage estimation."""
    cliprange_value: Annotated[float | None, at_least(0)] = None
    """How far a value may move from its old one; null takes `epsilon` of the ratio."""
    vf_coef: Annotated[float, at_least(0)] = 0.1
    """Weight of the value loss beside the policy's (backbone: shared)."""
    learning_rate_scale: Annotated[float, above(0)] = 1.0
    """Factor on the learning rate, for the head and for a copied backbone."""


@dataclass(kw_only=True)
class CompletionValueConfig(Settings):
    """Settings of credit by completions in one pass, see `mmrl.algorithms.completion_value`."""

    where: ClassVar[str] = "algorithm.completion_value"

    slices: Annotated[int, at_least(2)] = 8
    """Parts K of about equal size in which the trace of a rollout is credited; the rewards score
    K - 1 completions of each rollout beside the rollout itself."""
    lam: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Lambda of generalised advantage estimation: 0 credits a slice with what it changed, 1 with
    all that follows."""
