"""Settings of `python -m mmrl.sft`, named as in transformers and TRL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from mmrl.config import check, component
from mmrl.objectives import OBJECTIVES
from mmrl.training.learning_rate import check_schedule
from mmrl.training.optimizer_config import check_optimizer


@dataclass(kw_only=True)
class SFTConfig:
    """Settings of `python -m mmrl.sft`, named as in transformers and TRL."""

    output_dir: str = "runs/sft"
    """Run directory, see `mmrl.run.run_directory`."""
    objective: dict[str, Any] = field(
        default_factory=dict, metadata={"holds": "mmrl.objectives:OBJECTIVES"}
    )
    """`name` and options of the objective, checked against its `Config`."""
    max_steps: int = 1000
    """Optimiser steps of the whole run."""
    per_device_train_batch_size: int = 32
    """Examples per device and micro-batch."""
    gradient_accumulation_steps: int = 1
    """Micro-batches per optimiser step."""
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    """`muon` trains hidden matrices with Muon and everything else with AdamW; `sgd` is plain
    gradient descent with momentum."""
    learning_rate: float = 1e-4
    """Highest learning rate."""
    learning_rate_scales: dict[str, float] = field(default_factory=dict)
    """Factors on the learning rate of parameters whose name starts with the key."""
    weight_decay: float = 0.0
    """Decoupled weight decay of matrices and convolutions."""
    momentum: float = 0.9
    """Momentum of SGD."""
    adam_beta1: float = 0.9
    """First moment decay of AdamW."""
    adam_beta2: float = 0.999
    """Second moment decay of AdamW."""
    adam_epsilon: float = 1e-8
    """Denominator offset of AdamW."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""
    lr_scheduler_type: str = "cosine"
    """Name of a transformers schedule: constant_with_warmup, linear, cosine, …"""
    lr_scheduler_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the schedule, such as min_lr_rate for cosine_with_min_lr."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises from 0."""
    ema_decay: float = 0.0
    """Decay of an average of the weights, which is what is saved and evaluated; 0 is off."""
    bf16: Literal["auto", True, False] = "auto"
    """Run forward passes under bfloat16 autocast; `auto` does so where the device computes bfloat16
    natively, see `mmrl.runtime.precision`."""
    torch_compile: Literal["auto", True, False] = "auto"
    """Compile the repeated blocks of the network; `auto` is explained in
    `mmrl.runtime.compilation`. On a CPU it needs a C++ compiler."""
    seed: int = 0
    """Seed of new weights, of the order of examples and of every draw."""
    logging_steps: int = 10
    """Steps between lines of metrics."""
    eval_steps: int = 0
    """Steps between evaluations; 0 is never."""
    save_steps: int = 500
    """Steps between checkpoints; 0 writes only the final model."""
    save_total_limit: int | None = 2
    """Checkpoints to keep; null keeps all."""
    resume_from_checkpoint: str | None = None
    """`auto` continues from the newest checkpoint of `output_dir` if there is one; or a path."""
    resume_with_changes: bool = False
    """Continue although settings that shape the run are not those of the checkpoint."""
    dry_run: bool = False
    """Check everything, print the plan, and exit."""

    def __post_init__(self) -> None:
        for key in ("max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        check(self.logging_steps >= 1, "logging_steps", self.logging_steps, "at least 1")
        for key in ("eval_steps", "save_steps", "warmup_steps"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        check_optimizer(self)
        check(0 <= self.ema_decay < 1, "ema_decay", self.ema_decay, "from 0 to below 1")
        limit = self.save_total_limit
        check(limit is None or limit >= 1, "save_total_limit", limit, "null or at least 1")
        if self.objective:
            component(OBJECTIVES, self.objective, where="objective")
        check_schedule(self, self.max_steps)
