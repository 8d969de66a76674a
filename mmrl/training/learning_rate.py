"""Learning-rate schedules of transformers, by name, checked before any model loads."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, Protocol

from mmrl.config import ConfigError, check, check_choice

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LambdaLR

_BY_METRIC = ("reduce_lr_on_plateau", "greedy")
"""Follow a loss; here a schedule is a function of the step, so that resuming is exact."""
_PLAIN = ("constant", "constant_with_warmup", "linear", "cosine")
"""Without arguments of their own nothing can be wrong with them, and torch is not imported."""
_GIVEN = ("optimizer", "num_warmup_steps", "num_training_steps", "last_epoch")
"""Arguments that come from other settings."""


class ScheduleSettings(Protocol):
    """The settings read here, named as in transformers."""

    learning_rate: float
    lr_scheduler_type: str
    lr_scheduler_kwargs: dict[str, Any]
    warmup_steps: int


def build_schedule(optimizer: Optimizer, settings: ScheduleSettings, steps: int) -> LambdaLR:
    """The schedule of an optimiser over `steps` of its steps."""
    from transformers import get_scheduler

    # rates given as such (min_lr, lr_end) are taken against this default, not against the groups
    optimizer.defaults["lr"] = settings.learning_rate
    return get_scheduler(
        settings.lr_scheduler_type,
        optimizer,
        settings.warmup_steps,
        steps,
        dict(settings.lr_scheduler_kwargs),
    )  # type: ignore[return-value]


def check_schedule(settings: ScheduleSettings, steps: int) -> None:
    """Build the schedule of a run of `steps` for a stand-in and look at some of its rates.

    Raises:
        ConfigError: an unknown schedule, arguments it does not have or lacks, or impossible rates.
    """
    if settings.lr_scheduler_type in _PLAIN and not settings.lr_scheduler_kwargs:
        return
    import torch
    from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION
    from transformers.trainer_utils import SchedulerType

    name, arguments = settings.lr_scheduler_type, dict(settings.lr_scheduler_kwargs)
    known = [item.value for item in SchedulerType if item.value not in _BY_METRIC]
    check_choice("lr_scheduler_type", name, known)
    function = TYPE_TO_SCHEDULER_FUNCTION[SchedulerType(name)]
    taken = [key for key in inspect.signature(function).parameters if key not in _GIVEN]
    allowed = f"a mapping with keys of {', '.join(taken)}" if taken else "empty"
    check(
        arguments.keys() <= set(taken),
        "lr_scheduler_kwargs",
        arguments,
        f"{allowed} for lr_scheduler_type={name}",
    )
    stand_in = torch.optim.SGD([torch.zeros(1)], lr=settings.learning_rate)
    try:
        [rate] = build_schedule(stand_in, settings, steps).lr_lambdas
        rates = [rate(n) for n in range(0, steps + 1, math.ceil(steps / 100))]
        possible = all(0 <= value < math.inf for value in rates)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(
            f"lr_scheduler_kwargs is {arguments}, with which {name} cannot be built: {error}."
            f" Its keys: {', '.join(taken)}."
        ) from error
    check(possible, "lr_scheduler_kwargs", arguments, "one that gives rates of 0 or more")
