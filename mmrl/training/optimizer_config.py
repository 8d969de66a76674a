"""The settings of optimisers: what they may be."""

from __future__ import annotations

import math
from typing import Protocol

from mmrl.config import check

LARGEST = 1e6
"""Of learning rates: what is larger is a slip."""


class OptimizerSettings(Protocol):
    """Settings of a run that its optimiser reads, named as in transformers."""

    @property
    def optimizer(self) -> str: ...

    learning_rate: float
    weight_decay: float
    momentum: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    max_grad_norm: float
    learning_rate_scales: dict[str, float]


def check_optimizer(settings: OptimizerSettings) -> None:
    """Raise a ConfigError for a number that no optimiser can train with."""
    for key in ("learning_rate", "adam_epsilon"):
        value = getattr(settings, key)
        check(0 < value <= LARGEST, key, value, f"positive, finite and at most {LARGEST:g}")
    most = 1 / settings.learning_rate
    advice = "Times learning_rate it is the share of a weight that a step takes away."
    check(
        0 <= settings.weight_decay < most,
        "weight_decay",
        settings.weight_decay,
        f"0 or more, finite, and below 1 / learning_rate ({most:g})",
        advice,
    )
    norm = settings.max_grad_norm
    check(0 <= norm < math.inf, "max_grad_norm", norm, "0 or more, and finite")
    for key in ("momentum", "adam_beta1", "adam_beta2"):
        value = getattr(settings, key)
        check(0 <= value < 1, key, value, "from 0 to below 1")
    for name, value in settings.learning_rate_scales.items():
        where = f"learning_rate_scales.{name}"
        check(0 <= value < math.inf, where, value, "0 or more, and finite")
