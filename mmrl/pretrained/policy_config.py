"""Settings of one of several policies of a run, and of the old policy of contrasts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from mmrl.config import Settings, above, at_least
from mmrl.pretrained.model_config import ModelConfig


@dataclass(kw_only=True)
class OldPolicyConfig(Settings):
    """The old policy of contrasts: old <- d old + (1 - d) policy after the updates of every step,
    with d = min(`initial` + `uprate` max(0, n - `flat_steps`), `uphold`) after n optimiser steps;
    the rules and names of DiffusionNFT and UniRL."""

    where: ClassVar[str] = "old_policy"

    initial: Annotated[float, at_least(0, up_to=1)] = 0.0
    """d at the start."""
    uprate: Annotated[float, at_least(0)] = 0.001
    """By how much d rises with each optimiser step."""
    flat_steps: Annotated[int, at_least(0)] = 0
    """Optimiser steps before it rises."""
    uphold: Annotated[float, at_least(0, up_to=1)] = 0.5
    """Largest d."""

    def decay(self, steps: int) -> float:
        """d after so many optimiser steps."""
        return min(self.initial + self.uprate * max(0, steps - self.flat_steps), self.uphold)


@dataclass(kw_only=True)
class PolicyConfig(ModelConfig):
    """One of several policies: its model, and settings of the run that differ for it."""

    where: ClassVar[str] = "models"

    frozen: bool = False
    """Whether it only samples, or answers what others ask."""
    num_mini_batches: Annotated[int | None, at_least(1)] = None
    """As in the run; null takes that."""
    per_device_train_batch_size: Annotated[int | None, at_least(1)] = None
    """As in the run; null takes that."""
    optimizer: Literal["adamw", "adamw_8bit", "sgd"] | None = None
    """As in the run; null takes that."""
    learning_rate: Annotated[float | None, above(0)] = None
    """As in the run; null takes that."""
    lr_scheduler_type: str | None = None
    """As in the run; null takes that."""
    warmup_steps: Annotated[int | None, at_least(0)] = None
    """As in the run; null takes that."""
    weight_decay: Annotated[float | None, at_least(0)] = None
    """As in the run; null takes that."""
    max_grad_norm: Annotated[float | None, at_least(0)] = None
    """As in the run; null takes that."""
    old_policy: OldPolicyConfig | None = None
    """As in the run; null takes that."""
    sync_ref_model: bool | None = None
    """As in the run; null takes that."""

    def as_model(self) -> ModelConfig:
        """The model alone."""
        return ModelConfig(**{f.name: getattr(self, f.name) for f in fields(ModelConfig)})

    def training(self) -> dict[str, Any]:
        """The settings of the run that differ."""
        model = {f.name for f in fields(ModelConfig)}
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in model}
        return {name: value for name, value in own.items() if value is not None}
