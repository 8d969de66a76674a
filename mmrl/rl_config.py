"""Settings of `python -m mmrl.rl`, named as in TRL and transformers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from mmrl.algorithms import ValueConfig, load_algorithm
from mmrl.config import ConfigError, check, check_choice
from mmrl.model_config import ModelConfig, check_checkpoints, check_task
from mmrl.rollouts.task_config import TaskConfig
from mmrl.samplers.blocks import check_blocks
from mmrl.training.learning_rate import check_schedule
from mmrl.training.optimizer_config import check_optimizer
from models.layouts.layout_config import MAX_COMPLETION_LENGTH
from models.task_names import TASKS, writes_images

TRACKERS = ("tensorboard", "wandb")
TASK_NAME = re.compile(r"(?!\.)[\w.-]{1,64}", re.ASCII)
MICRO_BATCH = 16
"""Rollouts of a micro-batch at most, where their number is left to the run."""


@dataclass(kw_only=True)
class RLConfig:
    """A run."""

    choices: ClassVar = {"report_to": TRACKERS}

    output_dir: str = "runs/rl"
    """Run directory, see `mmrl.run.run_directory`."""
    seed: int = 0
    """Names every draw of the run."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The policy."""
    tasks: dict[str, TaskConfig] = field(default_factory=dict)
    """What is trained, by name; several tasks train one policy together."""
    max_steps: int = 100
    """Steps: rollouts, then all inner iterations on them."""
    per_device_train_batch_size: int | None = None
    """Rollouts per device and micro-batch; changes speed and memory only. Null takes the largest
    number up to 16 that divides the rollouts per device of every task."""
    passes_at_once: int = 2
    """Mask draws whose graphs are held at once where the loss is no sum over them; more of them are
    scored once more beforehand. Changes speed and memory only."""
    overlap_rewards: bool = True
    """Call rewards in threads of their own while the next groups are sampled; without it in turn
    when all are. The scores are the same."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """`sgd` is plain gradient descent with momentum; its learning rates are far larger."""
    learning_rate: float = 1e-5
    """Highest learning rate."""
    learning_rate_scales: dict[str, float] = field(default_factory=dict)
    """Factors on the learning rate of parameters whose name starts with the key."""
    lr_scheduler_type: str = "constant_with_warmup"
    """Name of a transformers schedule: constant_with_warmup, linear, cosine, …"""
    lr_scheduler_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the schedule, such as min_lr_rate for cosine_with_min_lr."""
    warmup_steps: int = 0
    """Optimiser steps over which the learning rate rises from 0."""
    weight_decay: float = 0.0
    """Decoupled weight decay of matrices."""
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
    bf16: Literal["auto", True, False] = "auto"
    """Sample and train under bfloat16 autocast; `auto` does so where the device computes bfloat16
    natively, see `mmrl.runtime.precision`."""
    torch_compile: Literal["auto", True, False] = "auto"
    """Compile the repeated blocks of the network; `auto` is explained in
    `mmrl.runtime.compilation`. On a CPU it needs a C++ compiler. With and without gradient are
    compiled apart, so that the ratio at the start of several inner iterations is 1 up to
    rounding."""
    logging_steps: int = 1
    """Steps between lines of metrics."""
    eval_steps: int = 0
    """Steps between evaluations on held-out prompts, besides the first and the last; 0 for none."""
    eval_images: int = 32
    """Images in the grid of an evaluation, and samples that trackers are shown."""
    save_steps: int = 50
    """Steps between checkpoints; 0 writes only the final model."""
    save_total_limit: int | None = 2
    """Checkpoints to keep; null keeps all."""
    save_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Stored precision of the model; null keeps that of the weights."""
    log_completions: bool = True
    """Write the last rollouts with their rewards to `samples/` whenever a checkpoint is written."""
    resume_from_checkpoint: str | None = None
    """`auto` continues from the newest checkpoint of `output_dir` if there is one; or a path."""
    resume_with_changes: bool = False
    """Continue although settings that shape the run are not those of the checkpoint."""
    report_to: list[str] = field(default_factory=list)
    """Trackers beside metrics.jsonl, for metrics and samples: tensorboard (into `tensorboard/` of
    the run directory), wandb."""
    dry_run: bool = False
    """Check everything, print the plan and the memory estimate, and exit."""

    def __post_init__(self) -> None:
        for key in ("max_steps", "passes_at_once", "logging_steps"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        size = self.per_device_train_batch_size
        check(size is None or size >= 1, "per_device_train_batch_size", size, "null or at least 1")
        for key in ("eval_steps", "eval_images", "save_steps", "warmup_steps"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        check_optimizer(self)
        limit = self.save_total_limit
        check(limit is None or limit >= 1, "save_total_limit", limit, "null or at least 1")
        for tracker in self.report_to:
            check_choice("report_to", tracker, TRACKERS)
            advice = f'Install it: pip install -e ".[{tracker}]"'
            check(bool(find_spec(tracker)), "report_to", tracker, "an installed package", advice)
        check(self.model.path != "", "model.path", self.model.path, "a directory or a hub id")
        if not self.tasks:
            raise ConfigError("tasks is empty; name at least one, with its prompts and rewards.")
        for name, task in self.tasks.items():
            allowed = "letters, digits, dashes, underscores and points, but for the first, up to 64"
            check(bool(TASK_NAME.fullmatch(name)), "tasks", name, allowed, "It names files.")
            check_choice(f"tasks.{name}.task", task.task, TASKS)
            task.check(f"tasks.{name}")
        held_out = any(task.eval_prompts for task in self.tasks.values())
        check(
            held_out or self.eval_steps == 0,
            "eval_steps",
            self.eval_steps,
            "0 without held-out prompts",
            "Set tasks.<name>.eval_prompts.",
        )
        iterations = {self._algorithm(name).num_iterations for name in self.tasks}
        check(len(iterations) == 1, "num_iterations", iterations, "the same for all tasks")
        for key in ("backbone", "learning_rate_scale"):
            found = {getattr(value, key) for value in self._values()}
            check(len(found) <= 1, f"algorithm.value.{key}", found, "the same for all tasks")
        check_schedule(self, self.optimizer_steps)

    def _algorithm(self, task: str) -> Any:
        return load_algorithm(self.tasks[task].algorithm, f"tasks.{task}.algorithm")

    def _values(self) -> list[ValueConfig]:
        values = [self._algorithm(name).value for name in self.tasks]
        return [value for value in values if value is not None]

    @property
    def value(self) -> ValueConfig | None:
        """The value model of the run, as the first task that has one describes it."""
        return next(iter(self._values()), None)

    @property
    def optimizer_steps(self) -> int:
        """Optimiser steps of the whole run."""
        return self.max_steps * self._algorithm(next(iter(self.tasks))).num_iterations

    @property
    def needs_reference(self) -> bool:
        """Whether any task has a KL to the reference policy."""
        return any(self._algorithm(name).needs_reference for name in self.tasks)

    def check_model(self) -> None:
        """Raise a ConfigError where it is known that the policy cannot do what the tasks ask."""
        from eval.asking import check_asking

        check_checkpoints(self.model)
        for name, task in self.tasks.items():
            purpose = f"for the task {task.task} of tasks.{name}"
            tokens = check_task(self.model, task.task, purpose)
            task.settle_rewards()
            for key in ("rewards", "eval_rewards"):
                check_asking(getattr(task, key), f"tasks.{name}.{key}", self.model)
            if writes_images(task.task):
                self._check_images(f"tasks.{name}", task, tokens)
            elif task.max_completion_length is None:  # others are checked with the task
                check_blocks(task.sampler, MAX_COMPLETION_LENGTH, f"tasks.{name}.sampler")
                if task.eval_sampler is not None and task.eval_max_completion_length is None:
                    where = f"tasks.{name}.eval_sampler"
                    check_blocks(task.eval_sampler, MAX_COMPLETION_LENGTH, where)

    def _check_images(self, where: str, task: TaskConfig, tokens: int | None) -> None:
        for prefix in ("", "eval_"):
            length = getattr(task, f"{prefix}max_completion_length")
            check(
                length in (None, tokens),
                f"{where}.{prefix}max_completion_length",
                length,
                "null for images",
                "model.image_size decides how many tokens they have.",
            )
            sampler = getattr(task, f"{prefix}sampler")
            if sampler is not None and tokens is not None:
                check_blocks(sampler, tokens, f"{where}.{prefix}sampler")

    def rollouts_per_device(self, world_size: int) -> dict[str, int]:
        """Rollouts of a step on each of the processes, by task."""
        return {
            name: task.num_prompts * task.num_generations // world_size
            for name, task in self.tasks.items()
        }

    def micro_batch_size(self, world_size: int) -> int:
        """Rollouts of a micro-batch on each of the processes."""
        if self.per_device_train_batch_size is not None:
            return self.per_device_train_batch_size
        shared = math.gcd(*self.rollouts_per_device(world_size).values())
        return max(n for n in range(1, MICRO_BATCH + 1) if shared % n == 0)

    def check_geometry(self, world_size: int) -> None:
        """Raise a ConfigError unless rollouts divide among devices and micro-batches."""
        for name, task in self.tasks.items():
            check(
                task.num_prompts % world_size == 0,
                f"tasks.{name}.num_prompts",
                task.num_prompts,
                f"a multiple of the {world_size} processes",
                "A group stays on one process.",
            )
        micro = self.micro_batch_size(world_size)
        for name, local in self.rollouts_per_device(world_size).items():
            divisors = [n for n in range(1, min(local, 1024) + 1) if local % n == 0]
            check(
                local % micro == 0,
                "per_device_train_batch_size",
                micro,
                f"null or a divisor of the {local} rollouts per device and step of task {name!r},"
                f" such as {divisors}",
            )
