"""What a run would do, without loading its weights: `dry_run=true`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl import samplers
from mmrl.algorithms.forwards import count_forwards
from mmrl.algorithms.presets import find_unread
from mmrl.models.families import get_family
from mmrl.models.loading import outline
from mmrl.preflight.disk import VQ_BYTES, Disk, list_written
from mmrl.preflight.memory import estimate, find_block_size
from mmrl.preflight.memory_plan import describe_memory
from mmrl.preflight.plan_page import ELSEWHERE, Plan
from mmrl.preflight.planned_launch import plan_placement
from mmrl.preflight.policy_sizes import count_weights, explain_plan, outline_policy
from mmrl.preflight.probe_config import SAMPLES
from mmrl.preflight.public_sizes import BYTES, sizes
from mmrl.preflight.reward_probe import add_probes
from mmrl.preflight.run_checks import check_run
from mmrl.preflight.run_probe import probe_task
from mmrl.preflight.training_rows import add_trained, describe_run
from mmrl.pretrained.known import find_here, own_vq
from mmrl.rl_config import RLConfig
from mmrl.rollouts.pairing import find_differences
from mmrl.rollouts.tasks import Task, completion_length
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.launch import count_processes
from mmrl.training.trainable import train_parts
from mmrl.types import Prompt

PLACES = {"shared": "the policy", "copy": "a copy of the policy"}
"""Where a value head is."""


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
    start = RunDirectory(config.output_dir).starting_point(config)
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
    needs = estimate(config, raw, tasks, placement)
    describe_memory(plan, needs, placement, _is_open(config))
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


def _is_open(config: RLConfig) -> bool:
    """Whether batch sizes are found when the run starts."""
    sizes = [task.rollout_batch_size for task in config.tasks.values()]
    return "auto" in (config.per_device_train_batch_size, *sizes)


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
    found = " (found anew when the run starts)" if _is_open(config) else ""
    value = f", value head on {PLACES[algorithm.value.backbone]}" if algorithm.value else ""
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
    yield (
        "sampler",
        f"{sampler.name}, {sampler.steps} denoising steps of"
        f" {task.rollouts_per_step * sampler.guidance.sides} rows (guidance"
        f" {sampler.cfg_scale:g}{image})",
    )
    yield (
        "algorithm",
        f"{algorithm.name}: masks {algorithm.mask}, {algorithm.num_draws} draws,"
        f" {algorithm.num_iterations} inner iterations, beta {algorithm.beta:g}{value}",
    )
    yield (
        "update",
        f"{config.updates_per_step} optimiser steps of {micro} micro-batches of {size} rollouts per"
        f" process{found}, {cost.total} forward and {cost.backward} backward passes each",
    )
    if algorithm.completion_value is not None:
        more = algorithm.completion_value.slices - 1
        yield (
            "credit",
            f"{more} passes more for each rollout, and rewards for {task.rollouts_per_step * more}"
            " completions more",
        )
    for difference in find_differences(algorithm, sampler, block_size is not None):
        yield "mismatch", difference
    for setting in (*find_unread(algorithm), *samplers.find_unread(sampler)):
        yield "no effect", setting


def _counted(source: str, prompts: list[Prompt]) -> str:
    """How many prompts there are; those of a data set that is not here are not known."""
    return str(len(prompts)) if prompts or not source else f"those of {source}{ELSEWHERE}"


def plan_disk(config: RLConfig, tasks: Sequence[Task]) -> Disk:
    """The disk of a run; of an adapter, checkpoints hold the adapter alone."""
    model, raw = config.model, sizes(config)[1]
    alone = estimate(config, raw, tasks)
    parts, count = alone.host | alone.device, count_weights(raw)
    whole, lora = count * BYTES[config.save_dtype or model.dtype], model.lora is not None
    state = sum(parts.get(key, 0) for key in ("gradients", "optimiser", "value", "average"))
    # weights are published in bfloat16, those of a pipeline in float32
    downloads: dict[str, float] = {model.path: count * (4 if "_class_name" in raw else 2)}
    vq = own_vq(model)
    if vq is not None and any(layout.needs_vq for layout in get_family(raw).LAYOUTS.values()):
        downloads.setdefault(vq, VQ_BYTES)
    merged = whole if config.merge_adapter else None
    written = list_written(config, parts["gradients"] if lora else whole, state, merged)
    return Disk(config.output_dir, written, downloads)
