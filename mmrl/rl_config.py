"""Settings of `python -m mmrl.rl`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from mmrl.algorithms import AlgorithmConfig, load_algorithm
from mmrl.algorithms.algorithm_config import ValueConfig
from mmrl.algorithms.presets import resolve_method
from mmrl.config import ConfigError, above, at_least, check, check_choice
from mmrl.config.checks import HUB_ID, is_hub_id
from mmrl.pretrained.model_config import ModelConfig, OldPolicyConfig, PolicyConfig
from mmrl.rewards.scoring.terms import key_of
from mmrl.rollouts.chain_order import check_chains, resolve_chain
from mmrl.rollouts.task_config import TaskConfig
from mmrl.run.report_config import ReportConfig
from mmrl.run.stop_rule import StopConfig
from mmrl.run_config import RunConfig, check_merge, check_schedule

TASK_NAME = re.compile(r"(?!\.)[\w.-]{1,64}", re.ASCII)
NAMES = "letters, digits, dashes, underscores and points, but for the first, up to 64"
MAX_AUTO_BATCH = 16
"""Largest micro-batch, in rollouts, where per_device_train_batch_size is null."""


@dataclass(kw_only=True)
class RLConfig(RunConfig):
    """Settings of `python -m mmrl.rl`, named as in TRL and transformers."""

    turns: ClassVar[int] = 1  # steps between two updates of a policy
    frozen: ClassVar[bool] = False  # of a policy that is not trained, see `PolicyConfig`

    output_dir: str = "runs/rl"
    model: ModelConfig = field(default_factory=ModelConfig)
    """The policy."""
    models: dict[str, PolicyConfig] = field(default_factory=dict)
    """Several policies by name, in place of `model`, which is the short form of one."""
    updates: Literal["together", "in_turn"] = "together"
    """Whether all policies that are trained are updated in every step, or one of them in turn."""
    tasks: dict[str, TaskConfig] = field(default_factory=dict)
    """What is trained, by name; several tasks train one policy together."""
    num_mini_batches: Annotated[int, at_least(1)] = 1
    """Parts of the rollouts of a step, with an optimiser step for each; each of the algorithm's
    `num_iterations` goes through all of them. Ratios are against the policy that sampled."""
    per_device_train_batch_size: Annotated[int | str | None, at_least(1, or_word="auto")] = None
    """Rollouts per device and micro-batch; changes speed and memory only. Null takes the largest
    number up to 16 that divides the rollouts per device and mini-batch of every task, `auto` the
    largest that fits the memory, see `mmrl.planning.batch_sizes`."""
    rollout_weights: Literal["whole", "by_block", "auto"] = "auto"
    """How rollouts read weights that processes share. `whole` gathers them once per phase:
    FSDP2 those that are trained (with LoRA the adapter), as the others are then not shared, ZeRO-3
    all of them. `by_block` gathers each block whenever it computes; `auto` is `whole` where all
    weights take at most half of a device's memory."""
    sync_ref_model: bool = False
    """Let the reference policy follow the trained one: reference <- alpha * policy + (1 - alpha) *
    reference, every `ref_model_sync_steps` optimiser steps, with alpha `ref_model_mixup_alpha`. It
    has no effect without a KL to the reference."""
    ref_model_mixup_alpha: Annotated[float, above(0, up_to=1)] = 0.6
    """Weight of the trained policy where the reference follows it; 1 replaces the reference."""
    ref_model_sync_steps: Annotated[int, at_least(1)] = 512
    """Optimiser steps after which the reference follows; the next rollouts are the first to see
    it."""
    old_policy: OldPolicyConfig | None = None
    """The old policy that contrasts and `beta_old` compare with, an average of the trained weights;
    null takes the policy as it was when the step began."""
    overlap_rewards: bool = True
    """Call rewards in background threads while the next groups are sampled; false calls them when
    all groups are sampled. The scores are the same."""
    offload: bool = False
    """Keep what no update reads in the memory of the host during updates: networks of rewards and
    an engine in this process, text encoders and autoencoder of a pipeline of latents."""
    eval_steps: int = 0
    """Steps between evaluations on held-out prompts, besides the first and the last; 0 for none."""
    stop_on: StopConfig | None = None
    """End the run where a score of its evaluations no longer improves; null never does. A
    checkpoint of the step of the best evaluation is kept: `save_steps` is best `eval_steps`."""
    notes: list[str] = field(default_factory=list)
    """What a plan says besides: the score that is published for a recipe, what to watch, and when
    to stop."""
    report: ReportConfig = field(default_factory=ReportConfig)
    """The headline and the control of `report.html`."""
    eval_images: Annotated[int, at_least(0)] = 32
    """Images in the grid of an evaluation, and samples that trackers are shown."""
    save_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Stored precision of the model; null keeps that of the weights."""
    log_completions: bool = True
    """Write rollouts with their rewards to `samples/`, those of the last step and of steps with a
    checkpoint, and `eval_images` completions of every evaluation."""
    log_completions_hub_repo: str | None = None
    """Data set of the hub, `owner/name` or a name, that `samples/` is uploaded to at the end."""
    log_completions_steps: Annotated[int | None, at_least(1)] = None
    """Steps between rollouts that are written without a checkpoint as well, 1 for all; null for
    none. A step takes about the space of its images."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_policies()
        check_merge(self, self.model)
        if not self.tasks:
            raise ConfigError("tasks is empty; name at least one, with its prompts and rewards.")
        check_chains(self.tasks)
        for name, task in self.tasks.items():
            check(bool(TASK_NAME.fullmatch(name)), "tasks", name, NAMES, "It names files.")
            task.algorithm = resolve_method(task.algorithm, f"tasks.{name}.algorithm")
            task.check(f"tasks.{name}")
            fits = task.sample_with == "policy" or self.old_policy is not None
            allowed, advice = "policy without an old policy", "Set old_policy."
            check(fits, f"tasks.{name}.sample_with", task.sample_with, allowed, advice)
        held_out = any(task.eval_prompts for task in self.tasks.values())
        allowed, advice = "0 without held-out prompts", "Set tasks.<name>.eval_prompts."
        check(held_out or self.eval_steps == 0, "eval_steps", self.eval_steps, allowed, advice)
        if (repository := self.log_completions_hub_repo) is not None:
            check(is_hub_id(repository), "log_completions_hub_repo", repository, HUB_ID)
            check(self.log_completions, "log_completions", False, "true with such a repository")
        if self.stop_on is not None:
            allowed = "above 0 with stop_on, which follows evaluations"
            check(self.eval_steps > 0, "eval_steps", self.eval_steps, allowed)
            evaluated = [(n, task) for n, task in self.tasks.items() if task.eval_prompts]
            scores = [(n, each) for n, t in evaluated for each in t.eval_rewards or t.rewards]
            known = [f"eval/{name}/{key_of(entry)}" for name, entry in scores]
            check_choice("stop_on.metric", self.stop_on.metric, known)
        for run in self.runs.values():
            run.check_policy()

    def check_policy(self) -> None:
        """Raise a ConfigError unless the tasks of a policy can be trained together."""
        iterations = {method.num_iterations for method in self.algorithms}
        check(len(iterations) <= 1, "num_iterations", iterations, "the same for all tasks")
        rates = {each.value.learning_rate_scale for each in self.algorithms if each.value}
        where = "algorithm.value.learning_rate_scale"
        check(len(rates) <= 1, where, rates, "the same for all tasks")
        check_schedule(self, self.optimizer_steps)
        engines = {each.connection for task in self.tasks.values() for each in task.engines}
        found = [" ".join(filter(None, each)) for each in sorted(engines)]
        check(len(engines) <= 1, "tasks.<name>.sampler", found, "one engine for a policy")

    def _check_policies(self) -> None:
        """Raise a ConfigError unless there is one policy, or each of several has tasks."""
        allowed = "empty with models" if self.models else "a directory or a hub id"
        check(bool(self.models) != bool(self.model.path), "model.path", self.model.path, allowed)
        for name, task in self.tasks.items():
            allowed = f"one of models: {', '.join(self.models)}"
            allowed = allowed if self.models else "empty without models"
            known = task.policy in (self.models or ("",))
            check(known, f"tasks.{name}.policy", task.policy, allowed)
        used = {task.policy for task in self.tasks.values()}
        trained = not self.models or any(not policy.frozen for policy in self.models.values())
        check(trained, "models", [*self.models], "policies of which one is not frozen")
        for name, policy in self.models.items():
            check(bool(TASK_NAME.fullmatch(name)), "models", name, NAMES, "It names files.")
            check(policy.path != "", f"models.{name}.path", policy.path, "a directory or a hub id")
            allowed = "the policy of a task, or frozen: true"
            check(name in used or policy.frozen, f"models.{name}", policy.path, allowed)

    @property
    def runs(self) -> dict[str, RLConfig]:
        """The settings by policy, as if each were trained alone on prompts that are in files: its
        own model, tasks and training; under "" of a run of one."""
        own = dict(self.tasks)
        for name, task in self.tasks.items():
            if given := resolve_chain(self.tasks, name):
                own[name] = replace(task, **given)
        if not self.models:
            return {"": self.changed(tasks=own)}
        number = sum(not policy.frozen for policy in self.models.values())
        turns = number if self.updates == "in_turn" else 1
        return {
            name: self.changed(
                model=policy.as_model(),
                models={},
                tasks={key: task for key, task in own.items() if task.policy == name},
                turns=turns,
                **policy.training(),
            )
            for name, policy in self.models.items()
        }

    @property
    def algorithms(self) -> list[AlgorithmConfig]:
        """The methods of the tasks."""
        named = self.tasks.items()
        return [load_algorithm(task.algorithm, f"tasks.{name}.algorithm") for name, task in named]

    @property
    def value(self) -> ValueConfig | None:
        """The value model of the run, as the first task that has one describes it."""
        return next((a.value for a in self.algorithms if a.value and not self.frozen), None)

    @property
    def optimizer_steps(self) -> int:
        """Optimiser steps of the whole run."""
        return -(-self.max_steps // self.turns) * self.updates_per_step

    @property
    def updates_per_step(self) -> int:
        """Optimiser steps on the rollouts of one step."""
        iterations = [method.num_iterations for method in self.algorithms]
        return max(iterations, default=1) * self.num_mini_batches

    @property
    def needs_reference(self) -> bool:
        """Whether any task has a KL to the reference policy."""
        return not self.frozen and any(method.needs_reference for method in self.algorithms)

    def rollouts_per_device(self, world_size: int) -> dict[str, int]:
        """Rollouts of a step on each of the processes, by task."""
        return {n: t.num_prompts * t.num_generations // world_size for n, t in self.tasks.items()}

    def micro_batch_size(self, world_size: int) -> int:
        """Rollouts of a micro-batch on each of the processes."""
        if isinstance(self.per_device_train_batch_size, int):
            return self.per_device_train_batch_size
        return max(n for n in self.micro_batch_sizes(world_size) if n <= MAX_AUTO_BATCH)

    def micro_batch_sizes(self, world_size: int) -> list[int]:
        """What a micro-batch may have: divisors of the rollouts of all tasks, 1 without any."""
        rollouts = self.rollouts_per_device(world_size).values()
        shared = math.gcd(*(number // self.num_mini_batches for number in rollouts)) or 1
        return [n for n in range(1, shared + 1) if shared % n == 0]
