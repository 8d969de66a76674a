"""The largest batches that fit, where a run leaves them open: `per_device_train_batch_size: auto`
and `tasks.<name>.rollout_batch_size: auto`.

Sizes follow from the estimate and from the whole memory of a device, which all processes and a
resumed run find the same; what is free differs. No pass is tried: `find_executable_batch_size` of
accelerate decides in each process for itself, so that the others would hang in a collective
operation where one fails, and a trial that fails leaves state of the optimiser behind.
"""

import logging
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import torch

from mmrl.planning.memory import estimate
from mmrl.pretrained.known import find_sizes
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.runtime.placement import Placement, device_memory

logger = logging.getLogger(__name__)
SHARE = 0.8
"""Share of a device's memory that an estimate may take."""


def settle_batch_sizes(
    runs: Mapping[str, RLConfig], tasks: Mapping[str, Task], placement: Placement
) -> tuple[dict[str, RLConfig], dict[str, int]]:
    """The settings of each policy with sizes in the place of `auto`, and the sizes by their keys,
    see `_settle`."""
    settled, chosen = dict[str, RLConfig](), dict[str, int]()
    for name, run in runs.items():
        settled[name], found = _settle(run, [tasks[key] for key in run.tasks], placement)
        chosen |= found
    return settled, chosen


def _settle(
    config: RLConfig, tasks: Sequence[Task], placement: Placement
) -> tuple[RLConfig, dict[str, int]]:
    """The settings with sizes in the place of `auto`, and the sizes by their keys: of rollouts a
    power of two or all of a device, of a micro-batch a divisor of those of every task; the smallest
    even where it does not fit. Tasks get copies of their settings."""
    open_tasks = [task for task in tasks if task.config.rollout_batch_size == "auto"]
    if not open_tasks and config.per_device_train_batch_size != "auto":
        return config, {}
    raw, config, chosen = find_sizes(config.model.path)[1], copy(config), dict[str, int]()
    limit = SHARE * (placement.memory or device_memory(torch.device("cpu")))

    def settle(key: str, settings: Any, sizes: Sequence[int], phase: str) -> None:
        name = key.rpartition(".")[2]
        for chosen[key] in reversed(sizes):
            setattr(settings, name, chosen[key])
            if estimate(config, raw, tasks, placement).phases()[phase] <= limit:
                break
        logger.info("%s: %d, the largest that is estimated to fit", key, chosen[key])

    for task in open_tasks:
        task.config = copy(task.config)
        task.config.rollout_batch_size = 1
    for task in open_tasks:
        number = task.rollouts_per_step // placement.world_size
        sizes = sorted({*(2**n for n in range(number.bit_length())), number})
        settle(f"tasks.{task.name}.rollout_batch_size", task.config, sizes, "rollout")
    if config.per_device_train_batch_size == "auto" and not config.frozen:
        sizes = config.micro_batch_sizes(placement.world_size)
        settle("per_device_train_batch_size", config, sizes, "update")
    return config, chosen
