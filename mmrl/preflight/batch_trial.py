"""The largest batches that fit, where a run leaves them open: `per_device_train_batch_size: auto`
and `rollout_batch_size: auto`.

Sizes grow until one does not fit. On a GPU whose process holds the whole model, a size fits if the
forward passes of a sampler, or the backward pass of a micro-batch, can be done on the longest
prompts beside the moments of the optimiser. On a CPU, which would start to swap, and where
processes share the model, in which one that runs out of memory would leave the others waiting, it
also has to be estimated to fit. Processes agree on the smallest. Nothing of a trial stays: no step
is taken, gradients are dropped, and random draws come from separate generators.

The sizes are kept beside `config.yaml`, so that a run that is resumed takes the same.
"""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
from accelerate.utils import gather_object

from mmrl.config import ConfigError
from mmrl.preflight.memory import estimate
from mmrl.randomness import generator
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.runtime.activity import activity
from mmrl.runtime.placement import Placement, read_placement
from mmrl.samplers import sample
from mmrl.types import Rollout

if TYPE_CHECKING:
    from mmrl.rl_config import RLConfig
    from mmrl.rollouts.tasks import Task
    from mmrl.run.run_directory import RunDirectory
    from mmrl.training.trainer import Trainer
    from mmrl.types import Canvas, Prompt

logger = logging.getLogger(__name__)
FILE = "batch_sizes.json"
SHARE = 0.8
"""Share of the free memory that an estimate may fill."""
CALLS = 2
"""Forward passes of a trial of a sampler; the first fills a cache."""


class _EnoughError(Exception):
    """A trial of a sampler has made its forward passes."""


def settle_batch_sizes(
    config: RLConfig, tasks: Mapping[str, Task], trainer: Trainer, run: RunDirectory
) -> None:
    """Replace `auto` by the largest sizes that fit; all processes call this.

    Args:
        config: of the run.
        tasks: of the run; their `rollout_batch_size` is set.
        trainer: of the run; its `micro_batch_size` is set.
        run: its directory, which keeps the sizes.

    Raises:
        ConfigError: not even a single rollout fits.
    """
    open_tasks = [t for t in tasks.values() if t.config.rollout_batch_size == "auto"]
    trains = config.per_device_train_batch_size == "auto"
    if not open_tasks and not trains:
        return
    found = _read(run.path / FILE, config, trainer)
    if found is None:
        found = _find(config, open_tasks, tasks, trainer, trains)
        if run.is_main:
            (run.path / FILE).write_text(json.dumps(found, indent=2) + "\n")
    for task in open_tasks:
        task.config.rollout_batch_size = found["rollout_batch_size"][task.name]
        logger.info("%s.rollout_batch_size: %d", task.name, task.config.rollout_batch_size)
    if trains:
        trainer.micro_batch_size = found["per_device_train_batch_size"]
        logger.info("per_device_train_batch_size: %d", trainer.micro_batch_size)


def _read(path: Path, config: RLConfig, trainer: Trainer) -> dict[str, Any] | None:
    """The sizes that a run has found before, with as many processes; None without."""
    known = json.loads(path.read_text()) if path.is_file() and trainer.step else {}
    trains = config.per_device_train_batch_size == "auto"
    wanted = {name for name, task in config.tasks.items() if task.rollout_batch_size == "auto"}
    complete = (
        known.get("processes") == trainer.accelerator.num_processes
        and wanted <= known["rollout_batch_size"].keys()
        and ("per_device_train_batch_size" in known or not trains)
    )
    return known if all(gather_object([complete])) else None


def _find(
    config: RLConfig,
    open_tasks: Sequence[Task],
    tasks: Mapping[str, Task],
    trainer: Trainer,
    trains: bool,
) -> dict[str, Any]:
    """Find the sizes that are open."""
    world_size = trainer.accelerator.num_processes
    placement = replace(read_placement(), device=trainer.policy.device.type)
    local = config.rollouts_per_device(world_size)
    found: dict[str, Any] = {"processes": world_size, "rollout_batch_size": {}}
    bound = _Bound(config, tasks, trainer, placement)
    with activity("finding batch sizes"), torch.random.fork_rng(), _ballast(bound):
        for task in open_tasks:
            sizes = [2**n for n in range(local[task.name].bit_length())]
            sizes = sorted({*sizes, local[task.name]})
            key = f"tasks.{task.name}.rollout_batch_size"
            size = _largest(key, sizes, bound.rollout(task), _rollout_trial(task, trainer), trainer)
            found["rollout_batch_size"][task.name] = size
            task.config.rollout_batch_size = size
        if trains:
            sizes = config.micro_batch_sizes(world_size)
            key = "per_device_train_batch_size"
            trial = _update_trial(list(tasks.values()), trainer, placement)
            found[key] = _largest(key, sizes, bound.update, trial, trainer)
    return found


def _largest(
    key: str,
    sizes: Sequence[int],
    fits: Callable[[int], bool],
    trial: Callable[[int], None],
    trainer: Trainer,
) -> int:
    """The last size before the first that does not fit on some process."""
    best = 0
    for size in sizes:
        if best and not all(gather_object([fits(size)])):
            break
        done = True
        try:
            trial(size)
        except torch.OutOfMemoryError:
            if trainer.sharding.shards:  # the others wait in a forward pass
                raise
            done = False
        _clear(trainer)
        if not done:
            gc.collect()  # what the error still refers to
        if not all(gather_object([done])):
            break
        best = size
    if not best:
        raise ConfigError(
            f"{key} is 'auto', and not even {sizes[0]} fits the memory of every device. See Out of"
            " memory in docs/troubleshooting.md."
        )
    return best


def _clear(trainer: Trainer) -> None:
    """Drop gradients and what a trial has left."""
    for module in trainer.modules:
        for parameter in module.parameters():
            parameter.grad = None
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class _Bound:
    """Whether sizes are estimated to fit the free memory of this process."""

    def __init__(
        self,
        config: RLConfig,
        tasks: Mapping[str, Task],
        trainer: Trainer,
        placement: Placement,
    ) -> None:
        self.config, self.tasks, self.placement = config, list(tasks.values()), placement
        self.raw, self.device = trainer.policy.network.public_config, trainer.policy.device
        self.tried = placement.way == "whole" and self.device.type == "cuda"
        self.later = 0.0 if trainer.step else self._needs()["optimiser"]
        self.free = SHARE * self._free() - self.later

    def rollout(self, task: Task) -> Callable[[int], bool]:
        """Whether that many rollouts of a task can be sampled at once."""

        def fits(size: int) -> bool:
            task.config.rollout_batch_size = size
            return self.tried or self._needs()["sampling"] <= self.free

        return fits

    def update(self, size: int) -> bool:
        """Whether that many rollouts can be a micro-batch."""
        if self.tried:
            return True
        needs = self._needs(per_device_train_batch_size=size)
        # those of ZeRO-3 are there from the start
        return needs["update"] + needs.get("gradients", 0.0) <= self.free

    def _needs(self, **changes: Any) -> dict[str, float]:
        config = replace(self.config, **changes)
        needs = estimate(config, self.raw, self.tasks, self.placement)
        return {name: 0.0 for name in needs.host} | needs.device

    def _free(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.mem_get_info(self.device)[0]
        return psutil.virtual_memory().available / self.placement.per_host


@contextmanager
def _ballast(bound: _Bound) -> Iterator[None]:
    """Hold the memory of the optimiser's moments, which a run that starts does not have yet."""
    size = int(bound.later) if bound.tried else 0
    held = torch.empty(size, dtype=torch.uint8, device=bound.device)
    yield
    del held


def _rollout_trial(task: Task, trainer: Trainer) -> Callable[[int], None]:
    """Makes the first forward passes of a sampler on some rows."""
    policy = trainer.policy

    def trial(size: int) -> None:
        model, calls = policy.model, 0

        def count(*_: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > CALLS:
                raise _EnoughError

        hook = model.register_forward_pre_hook(count, prepend=True)
        try:
            with torch.no_grad(), policy.sampling(False):
                canvas = _longest_canvas(task, trainer, size)
                sample(policy, canvas, task.config.sampler, generator("trial", task.name))
        except _EnoughError:
            pass
        finally:
            hook.remove()

    return trial


def _update_trial(
    tasks: Sequence[Task], trainer: Trainer, placement: Placement
) -> Callable[[int], None]:
    """Takes the gradient of a micro-batch of each task, twice, and drops it."""

    def trial(size: int) -> None:
        if placement.way not in ("whole", "fsdp2"):
            return  # DeepSpeed keeps what a backward pass adds
        before, trainer.micro_batch_size = trainer.micro_batch_size, size
        try:
            for task in tasks:
                trainer.try_gradient(task, _finished_batch(task, trainer, size))
        finally:
            trainer.micro_batch_size = before

    return trial


def _longest_canvas(task: Task, trainer: Trainer, size: int) -> Canvas:
    """Rows of the longest prompts and completions of a task."""
    lengths = task.config.max_completion_length, task.eval_length
    length = max((n for n in lengths if n is not None), default=None)
    prompts: list[Prompt] = [*task.prompts, *task.eval_prompts]
    prompts.sort(key=_measure, reverse=True)
    rows = [prompts[n % min(len(prompts), size)] for n in range(size)]
    return trainer.policy.canvas(rows, length)


def _measure(prompt: Prompt) -> tuple[int, int]:
    """Pixels of the images of a prompt, and characters."""
    return sum(w * h for w, h in prompt.image_sizes), len(str(prompt.text))


def _finished_batch(task: Task, trainer: Trainer, size: int) -> RolloutBatch:
    """Rollouts as a sampler would leave them, of a token that a response may have."""
    canvas = _longest_canvas(task, trainer, size)
    tokens = canvas.tokens.masked_fill(canvas.response, _allowed_token(canvas))
    canvas = replace(canvas, tokens=tokens, valid=canvas.response if canvas.stop_ids else None)
    order = (canvas.response.cumsum(1) - 1).clamp(min=0) % task.config.sampler.steps
    written_at = torch.where(canvas.response, order, -1)
    logprobs = torch.zeros(canvas.tokens.shape, device=canvas.tokens.device)
    settings = vars(task.config.sampler)
    rollout = Rollout(canvas, written_at, logprobs, dict(settings))
    advantages = torch.linspace(-1, 1, size)
    names = [(0, row) for row in range(size)]
    prompts = [task.prompts[0]] * size
    return RolloutBatch(prompts, rollout, [""] * size, advantages, advantages, names, {})


def _allowed_token(canvas: Canvas) -> int:
    """A token of the response vocabulary that does not end a text and is not forbidden."""
    first, end = canvas.vocab
    refused = {first + column for column in canvas.never} | set(canvas.stop_ids)
    return next(token for token in range(first, end) if token not in refused)
