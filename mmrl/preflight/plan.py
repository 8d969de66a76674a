"""What a run would do, without loading its weights: `dry_run=true`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmrl import samplers
from mmrl.algorithms.forwards import count_forwards
from mmrl.algorithms.presets import find_unread
from mmrl.models.families import get_family
from mmrl.models.loading import outline
from mmrl.preflight.memory import estimate, find_block_size
from mmrl.preflight.memory_plan import describe_memory
from mmrl.preflight.plan_page import ELSEWHERE, WIDTH, Plan, cut
from mmrl.preflight.planned_launch import plan_placement
from mmrl.preflight.policy_sizes import explain_plan, outline_policy
from mmrl.preflight.probe_config import SAMPLES
from mmrl.preflight.public_sizes import sizes
from mmrl.preflight.reward_probe import add_probes
from mmrl.preflight.run_checks import check_run
from mmrl.preflight.run_disk import plan_disk
from mmrl.preflight.run_probe import probe_task
from mmrl.preflight.training_rows import add_trained, describe_run
from mmrl.pretrained.known import find_here, own_vq
from mmrl.rl_config import RLConfig
from mmrl.rollouts.accuracy import MARGIN
from mmrl.rollouts.pairing import find_differences
from mmrl.rollouts.task_config import TaskConfig
from mmrl.rollouts.tasks import Task, completion_length
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.launch import count_processes
from mmrl.training.trainable import train_parts
from mmrl.types import Prompt


def describe(config: RLConfig, world_size: int | None = None) -> Plan:
    """What a run would do, its rewards on a few samples, and its memory.

    No weights of the policy are loaded, and nothing is downloaded but files that say what a
    checkpoint is; rewards whose checkpoints are on this machine are built and score recorded
    samples, or two dummy samples. What comes from the hub may be missing here.

    Args:
        config: of the run.
        world_size: number of processes; None for those that were launched.

    Raises:
        ConfigError: settings that cannot run.
        FileNotFoundError, ValueError: a reward that cannot be built.
    """
    world_size, plan = world_size or count_processes(), Plan(config)
    start = RunDirectory(config.output_dir).starting_point(config.resume_from_checkpoint)
    tasks = list(check_run(config, world_size, dry=True).values())
    (name, raw), placement = sizes(config), plan_placement(config.devices, world_size)
    _describe_model(plan, name, raw)
    describe_run(plan, start, config.optimizer_steps, f"{config.max_steps} steps", world_size)
    kernel, dtype = config.model.attn_implementation, config.model.dtype
    plan.add("computed", *choose_planned(config, placement, kernel, dtype).short)
    if config.sync_ref_model:
        alpha, steps = config.ref_model_mixup_alpha, config.ref_model_sync_steps
        moves = f"moves by {alpha:g} towards the policy every {steps} optimiser steps"
        if config.needs_reference:
            plan.add("reference", moves)
        else:
            plan.add("no effect", "sync_ref_model is true, and no task has a KL to the reference")
    for task in tasks:
        for row, text in _task(config, task, world_size, raw):
            plan.add(row, text)
        for title, probes in probe_task(config, task, Path(config.output_dir), SAMPLES, dry=True):
            add_probes(plan, title, probes)
    whatever = "auto" in (config.per_device_train_batch_size, *_batches(config))
    describe_memory(plan, estimate(config, raw, tasks, placement), placement, whatever)
    if (gathered := explain_plan(config, raw, placement)) is not None:
        plan.add("weights", gathered)
    plan_disk(config, tasks).describe(plan)
    return plan


def _describe_model(plan: Plan, name: str | None, raw: Mapping[str, Any]) -> None:
    """Add the checkpoints of a run, and which parts of its policy are trained."""
    config: RLConfig = plan.config
    model, directory = config.model, find_here("model.path", config.model.path)
    network = outline_policy(raw) if directory is None else outline(directory)
    codes = any(layout.needs_vq for layout in get_family(raw).LAYOUTS.values())
    known = f"; sizes are those of {name}" if name else ""
    here = f"{ELSEWHERE}{known}" if directory is None else ""
    plan.add("policy", f"{model.path}{here}; weights in {model.dtype}")
    vq = own_vq(model) if codes else None  # other families load no image tokenizer
    if vq is not None:
        plan.add("images", f"{vq}{ELSEWHERE if find_here('model.vq', vq) is None else ''}")
    train_parts(network, model, config.seed)
    add_trained(plan, network)


def _batches(config: RLConfig) -> list[int | str]:
    return [task.rollout_batch_size for task in config.tasks.values()]


def _task(
    config: RLConfig, task: Task, world_size: int, raw: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Rows about a task."""
    settings, algorithm, sampler = task.config, task.algorithm, task.config.sampler
    scale = sampler.image_guidance_scale
    image = f", image guidance {scale:g}" if scale else ""
    size, parts = config.micro_batch_size(world_size), config.num_mini_batches
    micro = task.rollouts_per_step // world_size // parts // size
    length = completion_length(settings, config.model, raw)
    block_size = find_block_size(outline_policy(raw))
    plan = {"num_mini_batches": parts, "block_size": block_size}
    cost = count_forwards(algorithm, sampler.steps, length, config.passes_at_once, **plan)
    weight = "" if settings.weight == 1 else f", weight {settings.weight:g}"
    yield "task", f"{task.name} ({settings.task}{weight})"
    held_out = _counted(settings.eval_prompts, task.eval_prompts)
    unknown = not task.prompts or (settings.eval_prompts and not task.eval_prompts)
    unchecked = "; columns of what is only on the hub could not be checked" if unknown else ""
    yield (
        "prompts",
        f"{_counted(settings.prompts, task.prompts)} to train on, {held_out} held out{unchecked}",
    )
    yield (
        "rollouts",
        f"{settings.num_prompts} prompts x {settings.num_generations} ="
        f" {task.rollouts_per_step} a step, of {length} response positions each",
    )
    for held, text in (("", settings.assistant_prefill), ("held out", task.eval_prefill)):
        if text:
            yield "prefill", cut(f"{text!r}{f' {held}' if held else ''}", WIDTH)
    yield (
        "sampler",
        f"{sampler.name}, {sampler.steps} denoising steps of"
        f" {task.rollouts_per_step * sampler.guidance.sides} rows (guidance"
        f" {sampler.cfg_scale:g}{image})",
    )
    yield (
        "algorithm",
        f"{algorithm.name}: masks {algorithm.mask}, {algorithm.num_draws} draws,"
        f" {algorithm.num_iterations} inner iterations, beta {algorithm.beta:g}",
    )
    if parts > 1:
        yield (
            "mini-batch",
            f"{parts} for each inner iteration, of {task.rollouts_per_step // parts} rollouts over"
            " all processes",
        )
    yield (
        "update",
        f"{config.updates_per_step} optimiser steps of {micro} micro-batches of {size} rollouts per"
        f" process, {cost.total} forward and {cost.backward} backward passes each",
    )
    if settings.accuracy_band is not None or settings.strict_len_check:
        keys = ", ".join(settings.accuracy_keys)
        yield "accuracy", f"of {keys}: {', '.join(_filters(settings))}"
    yield from _token_credit(config, task)
    for key, value in (
        ("per_device_train_batch_size", config.per_device_train_batch_size),
        (f"tasks.{task.name}.rollout_batch_size", settings.rollout_batch_size),
    ):
        if value == "auto":
            yield "auto", f"{key} is found when the run starts; the plan is of its default"
    for difference in find_differences(algorithm, sampler, block_size is not None):
        yield "mismatch", difference
    for setting in (*find_unread(algorithm), *samplers.find_unread(sampler)):
        yield "no effect", setting


def _token_credit(config: RLConfig, task: Task) -> Iterator[tuple[str, str]]:
    """Where advantages per token come from."""
    algorithm = task.algorithm
    if algorithm.value is not None:
        place = {"shared": "the policy", "copy": "a copy of the policy"}[algorithm.value.backbone]
        yield (
            "value",
            f"head on {place}, gamma {algorithm.value.gamma:g}, lambda"
            f" {algorithm.value.lam:g}, clip range {algorithm.value_epsilon:g}, learning rate"
            f" {config.learning_rate * algorithm.value.learning_rate_scale:g}",
        )
    if algorithm.completion_value is not None:
        slices, lam = algorithm.completion_value.slices, algorithm.completion_value.lam
        yield (
            "credit",
            f"of {slices} slices, lambda {lam:g}: {slices - 1} passes more for each rollout, and"
            f" rewards for {task.rollouts_per_step * (slices - 1)} completions more",
        )


def _filters(settings: TaskConfig) -> Iterator[str]:
    if settings.accuracy_band is not None:
        lowest, highest = settings.accuracy_band
        yield f"groups below {lowest:g} or above {highest:g} are left out"
    if settings.strict_len_check:
        yield f"0 for completions within {MARGIN} tokens of the longest"


def _counted(source: str, prompts: list[Prompt]) -> str:
    """How many prompts there are; those of a data set that is not here are not known."""
    return str(len(prompts)) if prompts or not source else f"those of {source}{ELSEWHERE}"
