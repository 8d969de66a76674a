"""The largest batches that fit, where a run leaves them open: `per_device_train_batch_size: auto`
and `rollout_batch_size: auto`.

A size fits if rollouts or update are estimated to take at most `SHARE` of the memory that is free
on every device once the policy is loaded, beside the moments that the optimiser will have. Nothing
is tried: a step that runs out of memory on one process leaves the others in a collective call. The
sizes are kept beside `config.yaml`, so that a run that is resumed takes the same.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil
import torch
from accelerate.utils import gather_object

from mmrl.planning.memory import estimate
from mmrl.runtime.placement import Placement, read_placement

if TYPE_CHECKING:
    from mmrl.rl_config import RLConfig
    from mmrl.rollouts.tasks import Task
    from mmrl.run.run_directory import RunDirectory
    from mmrl.training.trainer import Trainer

logger = logging.getLogger(__name__)
FILE = "batch_sizes.json"
MICRO, ROLLOUTS = "per_device_train_batch_size", "rollout_batch_size"
SHARE = 0.8
"""Share of the free memory that an estimate may fill."""


def settle_batch_sizes(
    config: RLConfig, tasks: Mapping[str, Task], trainer: Trainer, run: RunDirectory
) -> None:
    """Replace `auto` by the largest sizes that fit, or by 1; all processes call this.

    Args:
        config: of the run.
        tasks: of the run; their `rollout_batch_size` is set.
        trainer: of the run; its `micro_batch_size` is set.
        run: its directory, which keeps the sizes.
    """
    open_tasks = [task for task in tasks.values() if task.config.rollout_batch_size == "auto"]
    names, trains = {task.name for task in open_tasks}, getattr(config, MICRO) == "auto"
    if not open_tasks and not trains:
        return
    world_size, file = trainer.accelerator.num_processes, run.path / FILE
    kept = json.loads(file.read_text()) if file.is_file() and trainer.step else {}
    [found, *_] = gather_object([kept])  # that of the main process
    known = names <= found.get(ROLLOUTS, {}).keys() and (MICRO in found or not trains)
    if not known or found["processes"] != world_size:
        found = {
            "processes": world_size,
            **_find(config, open_tasks, list(tasks.values()), trainer),
        }
        if run.is_main:
            file.write_text(json.dumps(found, indent=2) + "\n")
    for task in open_tasks:
        task.config.rollout_batch_size = found[ROLLOUTS][task.name]
        logger.info("%s.%s: %d", task.name, ROLLOUTS, found[ROLLOUTS][task.name])
    if trains:
        trainer.micro_batch_size = found[MICRO]
        logger.info("%s: %d", MICRO, found[MICRO])


def _find(
    config: RLConfig, open_tasks: Sequence[Task], tasks: Sequence[Task], trainer: Trainer
) -> dict[str, Any]:
    """The largest sizes, the same on all processes."""
    world_size, device = trainer.accelerator.num_processes, trainer.policy.device
    placement = replace(read_placement(), device=device.type)
    raw, rollouts = trainer.policy.network.public_config, dict[str, int]()

    def needs(names: Sequence[str], **changes: Any) -> float:
        parts = estimate(replace(config, **changes), raw, tasks, placement).device
        return sum(parts.get(name, 0.0) for name in names)

    free = SHARE * min(gather_object([_free(device, placement)]))
    free -= 0.0 if trainer.step else needs(["optimiser"])
    for task in open_tasks:
        number, best = config.rollouts_per_device(world_size)[task.name], 1
        for size in (*(2**n for n in range(1, number.bit_length())), number):
            task.config.rollout_batch_size = size
            best = size if needs(["sampling"]) <= free else best
        task.config.rollout_batch_size = rollouts[task.name] = best
    if getattr(config, MICRO) != "auto":
        return {ROLLOUTS: rollouts}
    held, sizes = ["gradients", "update"], config.micro_batch_sizes(world_size)
    fitting = [n for n in sizes if needs(held, **{MICRO: n}) <= free]
    return {ROLLOUTS: rollouts, MICRO: max([1, *fitting])}


def _free(device: torch.device, placement: Placement) -> float:
    """Free bytes of this process."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available / placement.per_host
