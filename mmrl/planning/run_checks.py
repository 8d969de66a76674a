"""What a run, its dry run and its probe check before anything loads."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from mmrl.config import check
from mmrl.engines.sampler import check_server
from mmrl.generation.kinds import SAMPLERS
from mmrl.models.layouts.layout_config import MAX_COMPLETION_LENGTH
from mmrl.models.task_names import writes_images
from mmrl.planning.reward_probe import offline
from mmrl.pretrained.checks import (
    check_checkpoints,
    check_network_blocks,
    check_prompts,
    check_sampling,
    check_task,
)
from mmrl.pretrained.known import Known
from mmrl.rl_config import RLConfig
from mmrl.rollouts.chain import link_tasks
from mmrl.rollouts.chain_order import check_rewards
from mmrl.rollouts.policy_queries import check_queries
from mmrl.rollouts.task_config import TaskConfig
from mmrl.rollouts.tasks import Task
from mmrl.run.hub_upload import check_token
from mmrl.runtime.launch_checks import check_images, check_launch
from mmrl.samplers import check_sampler


def check_run(config: RLConfig, world_size: int = 1, dry: bool = False) -> dict[str, Task]:
    """Check the launch, the batch geometry, the checkpoints of the policy, the tasks and prompts;
    return the tasks by name, with their prompts, and their rewards not built. If `dry`, nothing is
    downloaded, and a task whose prompts are only on the hub has none. Raises ConfigError,
    FileNotFoundError, ValueError: what the run cannot start with."""
    check_launch(config.optimizer, config.torch_compile)
    check_rewards(config.tasks)
    if config.log_completions_hub_repo is not None and not dry:
        check_token("log_completions_hub_repo", config.log_completions_hub_repo, "null")
    control = config.report.control
    there = control is None or Path(control).expanduser().is_file()
    check(there, "report.control", control, "null, or an existing metrics.jsonl")
    knowns = {name: Known.read(run.model) for name, run in config.runs.items()}
    tasks: dict[str, Task] = {}
    for name, run in config.runs.items():
        tasks |= _check_policy(run, {**knowns, "": knowns[name]}, world_size, dry)
    return link_tasks(tasks, config.tasks)


def _check_policy(
    config: RLConfig, knowns: Mapping[str, Known], world_size: int, dry: bool
) -> dict[str, Task]:
    """Check the settings of a policy, which `knowns` has as ""; return its tasks."""
    check_geometry(config, world_size)
    follows = any(method.follows_rewards for method in config.algorithms)
    allowed = "false, as updates ask rewards and the autoencoder for their gradient"
    check(not (config.offload and follows), "offload", config.offload, allowed)
    known = knowns[""]
    for name, task in config.tasks.items():
        tokens = check_task(known, task.task, f"for the task {task.task} of tasks.{name}")
        task.settle_rewards()
        for key in ("rewards", "eval_rewards"):
            check_queries(getattr(task, key), f"tasks.{name}.{key}", knowns)
        for prefix in ("", "eval_"):
            _check_sampler(known, f"tasks.{name}", task, tokens, prefix)
    policy = check_checkpoints(known)
    with offline() if dry else nullcontext():
        exact = known.blocks is not None
        tasks = {name: Task(name, options, dry, exact) for name, options in config.tasks.items()}
    for task in tasks.values():
        for engine in () if dry else task.config.engines:
            check_server(engine, known.config or {})
        check_prompts(known, task.config.task, [*task.prompts, *task.eval_prompts])
        _check_sampled_prompts(known, task)
        early = dry or config.model.long_prompts is not None
        if early and policy is not None and task.config.task in policy.layouts:
            task.leave_out_long_prompts(policy)  # a run does so with the policy that it loads
        if config.model.vq is None or not known.reads_codes:
            _check_features(config, task)
    return tasks


def _check_sampled_prompts(known: Known, task: Task) -> None:
    """Refuse prompts without what the samplers read of them."""
    config, images = task.config, writes_images(task.config.task)
    tokens = check_task(known, config.task, "for images") if images else None
    for prompts, sampler, given in (
        (task.prompts, config.sampler, config.max_completion_length),
        (task.eval_prompts, config.eval_sampler or config.sampler, task.eval_length),
    ):
        length = tokens if images else given or MAX_COMPLETION_LENGTH
        SAMPLERS[sampler.name].check_prompts(sampler, prompts, length)


def _check_features(config: RLConfig, task: Task) -> None:
    """Refuse what cannot be where a vision tower reads the images of prompts: some launches with
    and without images, and prompts that are left out, as the images belong to a row."""
    kinds = {bool(prompt.image_sizes) for prompt in task.prompts}
    trained = config.model.lora is None or config.model.train_vision_tower
    trained = trained or bool(config.model.modules_to_train)
    check_images(f"tasks.{task.name}.prompts", task.config.prompts, len(kinds) > 1, trained)
    prob, key = task.algorithm.cond_dropout_prob, f"tasks.{task.name}.algorithm.cond_dropout_prob"
    why = f"{task.config.prompts} has images, which this policy reads as features."
    check(prob == 0 or not any(kinds), key, prob, "0", why)


def check_geometry(config: RLConfig, world_size: int) -> None:
    """Raise a ConfigError unless rollouts divide among devices, mini-batches and micro-batches."""
    for name, task in config.tasks.items():
        key, number = f"tasks.{name}.num_prompts", task.num_prompts
        allowed = f"a multiple of the {world_size} processes"
        check(number % world_size == 0, key, number, allowed, "A group stays on one process.")
    rollouts, parts = config.rollouts_per_device(world_size), config.num_mini_batches
    for name, local in rollouts.items():
        _check_divides(local, "num_mini_batches", parts, f"step of task {name!r}")
    for (name, task), method in zip(config.tasks.items(), config.algorithms, strict=True):
        groups = task.num_prompts // world_size
        allowed = f"a divisor of the {groups} groups of a process, as its loss is of groups"
        fits = method.group is None or groups % parts == 0
        check(fits, "num_mini_batches", parts, f"{allowed} (task {name!r})")
    micro, unit = config.micro_batch_size(world_size), "step" if parts == 1 else "mini-batch"
    for name, local in rollouts.items():
        of = f"{unit} of task {name!r}"
        _check_divides(local // parts, "per_device_train_batch_size", micro, of, "null, auto or ")


def _check_divides(rollouts: int, key: str, number: int, of: str, otherwise: str = "") -> None:
    divisors = [n for n in range(1, min(rollouts, 1024) + 1) if rollouts % n == 0]
    allowed = f"{otherwise}a divisor of the {rollouts} rollouts per device and {of}"
    check(rollouts % number == 0, key, number, f"{allowed}, such as {divisors}")


def _check_sampler(
    policy: Known, where: str, task: TaskConfig, tokens: int | None, prefix: str
) -> None:
    """Check the cache of a sampler, and its blocks at a length of the checkpoint or layout."""
    key, sampler = f"{prefix}max_completion_length", getattr(task, f"{prefix}sampler")
    length, images = getattr(task, key), writes_images(task.task)
    if images:
        advice = "model.image_size decides how many tokens they have."
        check(length in (None, tokens), f"{where}.{key}", length, "null for images", advice)
    if sampler is None:
        return
    place, given = f"{where}.{prefix}sampler", length or task.max_completion_length
    check_sampling(policy, sampler, place)
    if not images:
        check_network_blocks(policy, sampler, given, place, f"{where}.{key}")
    known = tokens if images else MAX_COMPLETION_LENGTH
    if known is not None and (images or given is None):  # else checked with the task
        check_sampler(sampler, place, known)
