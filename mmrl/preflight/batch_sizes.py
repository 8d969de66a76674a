"""The largest batches that fit, where a run leaves them open: `per_device_train_batch_size: auto`
and `rollout_batch_size: auto`.

A size fits if rollouts or update are estimated to take at most `SHARE` of the memory that is free
once the policy is loaded, beside the moments that the optimiser will have. Processes agree on the
smallest. The sizes are kept beside `config.yaml`, so that a run that is resumed takes the same.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil
import torch
from accelerate.utils import gather_object

from mmrl.preflight.memory import estimate
from mmrl.runtime.placement import Placement, read_placement

if TYPE_CHECKING:
    from mmrl.rl_config import RLConfig
    from mmrl.rollouts.tasks import Task
    from mmrl.run.run_directory import RunDirectory
    from mmrl.training.trainer import Trainer

logger = logging.getLogger(__name__)
FILE, KEY = "batch_sizes.json", "per_device_train_batch_size"
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
    open_tasks = [t for t in tasks.values() if t.config.rollout_batch_size == "auto"]
    trains = config.per_device_train_batch_size == "auto"
    if not open_tasks and not trains:
        return
    file = run.path / FILE
    known = json.loads(file.read_text()) if file.is_file() and trainer.step else {}
    complete = (
        known.get("processes") == trainer.accelerator.num_processes
        and {task.name for task in open_tasks} <= known["rollout_batch_size"].keys()
        and (not trains or KEY in known)
    )
    found = known
    if not all(gather_object([complete])):
        found = _find(config, open_tasks, tasks, trainer)
        if run.is_main:
            file.write_text(json.dumps(found, indent=2) + "\n")
    for task in open_tasks:
        task.config.rollout_batch_size = found["rollout_batch_size"][task.name]
        logger.info("%s.rollout_batch_size: %d", task.name, task.config.rollout_batch_size)
    if trains:
        trainer.micro_batch_size = found[KEY]
        logger.info("%s: %d", KEY, trainer.micro_batch_size)


def _find(
    config: RLConfig,
    open_tasks: Sequence[Task],
    tasks: Mapping[str, Task],
    trainer: Trainer,
) -> dict[str, Any]:
    """Find the sizes that are open."""
    world_size, device = trainer.accelerator.num_processes, trainer.policy.device
    placement = replace(read_placement(), device=device.type)
    raw, local = trainer.policy.network.public_config, config.rollouts_per_device(world_size)

    def needs(*names: str, **changes: Any) -> float:
        found = estimate(replace(config, **changes), raw, list(tasks.values()), placement).device
        return sum(found.get(name, 0.0) for name in names)

    free = SHARE * _free(device, placement) - (0.0 if trainer.step else needs("optimiser"))
    found: dict[str, Any] = {"processes": world_size, "rollout_batch_size": {}}
    for task in open_tasks:
        number, settings = local[task.name], task.config

        def sampling(size: int, settings: Any = settings) -> bool:
            settings.rollout_batch_size = size
            return needs("sampling") <= free

        sizes = sorted({*(2**n for n in range(number.bit_length())), number})
        settings.rollout_batch_size = _largest(sizes, sampling)
        found["rollout_batch_size"][task.name] = settings.rollout_batch_size
    if config.per_device_train_batch_size == "auto":
        sizes = config.micro_batch_sizes(world_size)
        found[KEY] = _largest(sizes, lambda n: needs("update", "gradients", **{KEY: n}) <= free)
    return found


def _largest(sizes: Sequence[int], fits: Callable[[int], bool]) -> int:
    """The last size before the first that does not fit some process; the first is taken anyway."""
    best, *larger = sizes
    for size in larger:
        if not all(gather_object([fits(size)])):
            break
        best = size
    return best


def _free(device: torch.device, placement: Placement) -> float:
    """Free bytes of this process."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available / placement.per_host
