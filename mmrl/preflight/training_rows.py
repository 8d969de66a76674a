"""Rows of a plan that every training run has: what is trained, how long, and how."""

from pathlib import Path

from torch import nn

from mmrl.preflight.plan_page import Plan
from mmrl.training.trainable import count_parts, trained_counts


def add_trained(plan: Plan, network: nn.Module) -> None:
    """Add the parts of a network that are trained, and those that are not."""
    counts = count_parts(network)
    trained, every = counts.pop("total")
    whole = [name for name, (some, of) in counts.items() if some == of]
    partly = [f"{name} in part" for name, (some, of) in counts.items() if 0 < some < of]
    frozen = [name for name, (some, _) in counts.items() if not some]
    rest = f"; frozen: {', '.join(frozen)}" if frozen else ""
    shown = ", ".join([*whole, *partly])
    plan.add("trained", f"{trained:,} of {every:,} parameters: {shown}{rest}")
    plan.details += ["trained parameters", *(f"  {line}" for line in trained_counts(network))]


def describe_run(
    plan: Plan, start: Path | None, updates: int | None, length: str, world_size: int
) -> None:
    """Add steps and optimiser.

    Args:
        plan: of the run.
        start: checkpoint that it continues from.
        updates: optimiser steps; None where only the data say.
        length: steps or epochs in words.
        world_size: number of processes.
    """
    config = plan.config
    since = "the first step" if start is None else str(start)
    processes = f"{world_size} process{'' if world_size == 1 else 'es'}"
    due = [("evaluation", config.eval_steps), ("checkpoint", config.save_steps)]
    every = [f"{name} every {n} steps" if n else f"no {name}" for name, n in due]
    plan.add(
        "run",
        f"{config.output_dir}, {length} from {since}, seed {config.seed}, {processes},"
        f" {', '.join(every)}",
    )
    scales = [f"{scale:g} x for {name}" for name, scale in config.learning_rate_scales.items()]
    decay = [f"weight decay {config.weight_decay:g}"] if config.weight_decay else []
    warm = f" after {config.warmup_steps} steps of warm-up" if config.warmup_steps else ""
    rate = f"learning rate {config.learning_rate:g}, {config.lr_scheduler_type}{warm}"
    number = [f"{updates} optimiser steps"] if updates else []
    parts = [config.optimizer, rate, *scales, *decay, *number]
    plan.add("optimiser", ", ".join(parts))
