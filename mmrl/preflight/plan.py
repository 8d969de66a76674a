"""What a run would do, without loading its weights: `dry_run=true`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from mmrl import samplers
from mmrl.algorithms.forwards import count_forwards
from mmrl.algorithms.presets import find_unread
from mmrl.config import to_yaml
from mmrl.models.families import get_family
from mmrl.models.loading import outline
from mmrl.preflight.disk import VQ_BYTES, describe_disk
from mmrl.preflight.memory import estimate, find_block_size
from mmrl.preflight.memory_plan import describe_memory
from mmrl.preflight.policy_sizes import count_weights, explain_plan
from mmrl.preflight.probe_config import SAMPLES
from mmrl.preflight.public_sizes import BYTES, sizes
from mmrl.preflight.reward_probe import format_probes
from mmrl.preflight.run_checks import check_run
from mmrl.preflight.run_probe import probe_task
from mmrl.pretrained.known import families, known_config, own_vq
from mmrl.rl_config import RLConfig
from mmrl.rollouts.accuracy import MARGIN
from mmrl.rollouts.pairing import find_differences
from mmrl.rollouts.task_config import TaskConfig
from mmrl.rollouts.tasks import Task, completion_length
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.computation import choose
from mmrl.runtime.launch import count_processes
from mmrl.runtime.placement import read_placement
from mmrl.training.trainable import train_parts, trained_counts
from mmrl.types import Prompt


def describe(config: RLConfig, world_size: int | None = None) -> str:
    """Settings, plan, rewards and memory estimate of a run.

    No weights of the policy are loaded and nothing is downloaded; rewards whose checkpoints are
    on this machine are built and score recorded samples, or two dummy samples. What comes
    from the hub may be missing here.

    Args:
        config: of the run.
        world_size: number of processes; None for those that were launched.

    Raises:
        ConfigError: settings that cannot run.
        FileNotFoundError, ValueError: a reward that cannot be built.
    """
    world_size = world_size or count_processes()
    RunDirectory(config.output_dir).starting_point(config)
    tasks = list(check_run(config, world_size, dry=True).values())
    (name, raw), placement = sizes(config), read_placement(world_size=world_size)
    lines = [to_yaml(config), "plan", *(f"  {line}" for line in _run(config, world_size))]
    if (gathered := explain_plan(config, raw, placement)) is not None:
        lines.append(f"  weights     {gathered}")
    for task in tasks:
        lines += [f"  {line}" for line in _task(config, task, world_size)]
    lines.append("rewards")
    for task in tasks:
        for title, probes in probe_task(config, task, Path(config.output_dir), SAMPLES, dry=True):
            lines += [f"  {title}", *(f"    {line}" for line in format_probes(probes))]
    if name is not None:
        lines.append(f"{config.model.path} is not on this machine; sizes are those of {name}")
    lines += describe_memory(estimate(config, raw, tasks, placement), placement)
    lines.append("disk, estimated")
    alone = estimate(config, raw, tasks)
    lines += [f"  {line}" for line in _disk(config, raw, alone.host | alone.device)]
    return "\n".join(lines) + "\n"


def _run(config: RLConfig, world_size: int) -> Iterator[str]:
    layouts = [layout for family in families(config.model) for layout in family.LAYOUTS.values()]
    codes = any(layout.needs_vq for layout in layouts)  # others load no image tokenizer
    for key, path in (("policy", config.model.path), ("images", own_vq(config.model))):
        if path is not None and (key == "policy" or codes):
            here = Path(path).expanduser().is_dir() or known_config(path)
            yield f"{key:<12}{path}{'' if here else _ELSEWHERE}"
    yield (
        f"run         {config.output_dir}, {config.max_steps} steps, seed {config.seed},"
        f" {world_size} process{'' if world_size == 1 else 'es'}"
    )
    if Path(config.model.path).expanduser().is_dir():
        network = outline(Path(config.model.path).expanduser())
        train_parts(network, config.model, config.seed)
        for n, line in enumerate(trained_counts(network)):
            yield f"{'' if n else 'trained':<12}{line}"
    model = config.model
    found = choose(config, attn_implementation=model.attn_implementation, dtype=model.dtype)
    for n, line in enumerate(found.lines):
        yield f"{'' if n else 'computed':<12}{line}"
    if config.sync_ref_model:
        alpha, steps = config.ref_model_mixup_alpha, config.ref_model_sync_steps
        yield (
            f"reference   moves by {alpha:g} towards the policy every {steps} optimiser steps"
            if config.needs_reference
            else "no effect   sync_ref_model is true, and no task has a KL to the reference"
        )
    due = [("evaluation", config.eval_steps), ("checkpoint", config.save_steps)]
    every = [f"{name} every {n} steps" if n else f"no {name}" for name, n in due]
    yield f"            {', '.join(every)}"


_ELSEWHERE = ", not on this machine: loaded from the hub"


def _task(config: RLConfig, task: Task, world_size: int) -> Iterator[str]:
    settings, algorithm, sampler = task.config, task.algorithm, task.config.sampler
    rows = task.rollouts_per_step * sampler.guidance.sides
    scale = sampler.image_guidance_scale
    image = f", image guidance {scale:g}" if scale else ""
    size = config.micro_batch_size(world_size)
    parts = config.num_mini_batches
    micro = task.rollouts_per_step // world_size // parts // size
    raw = sizes(config)[1]
    length = completion_length(settings, config.model, raw)
    with torch.device("meta"):
        block_size = find_block_size(get_family(raw).network(raw))
    plan = {"num_mini_batches": parts, "block_size": block_size}
    cost = count_forwards(algorithm, sampler.steps, length, config.passes_at_once, **plan)
    yield f"task        {task.name} ({settings.task})"
    yield f"prompts     {_counted(settings.prompts, task.prompts)} to train on,"
    yield f"            {_counted(settings.eval_prompts, task.eval_prompts)} held out"
    if not task.prompts or (settings.eval_prompts and not task.eval_prompts):
        yield "            columns of what is only on the hub could not be checked"
    yield (
        f"rollouts    {settings.num_prompts} prompts x {settings.num_generations} ="
        f" {task.rollouts_per_step} a step, of {length} response positions each"
    )
    for held, text in (("", settings.assistant_prefill), ("held out", task.eval_prefill)):
        if text:
            yield f"prefill     {text!r}{f' {held}' if held else ''}"
    yield (
        f"sampler     {sampler.name}, {sampler.steps} denoising steps of {rows} rows"
        f" (guidance {sampler.cfg_scale:g}{image})"
    )
    yield (
        f"algorithm   {algorithm.name}: masks {algorithm.mask}, {algorithm.num_draws} draws,"
        f" {algorithm.num_iterations} inner iterations, beta {algorithm.beta:g}"
    )
    if parts > 1:
        yield (
            f"mini-batch  {parts} for each inner iteration, of"
            f" {task.rollouts_per_step // parts} rollouts over all processes"
        )
    yield (
        f"update      {config.updates_per_step} optimiser steps of {micro} micro-batches of"
        f" {size} rollouts per process,"
        f" {cost.total} forward and {cost.backward} backward passes each"
    )
    if settings.accuracy_band is not None or settings.strict_len_check:
        yield f"accuracy    of {', '.join(settings.accuracy_keys)}: {', '.join(_filters(settings))}"
    yield from _token_credit(config, task)
    for key, value in (
        ("per_device_train_batch_size", config.per_device_train_batch_size),
        (f"tasks.{task.name}.rollout_batch_size", settings.rollout_batch_size),
    ):
        if value == "auto":
            yield f"auto        {key} is found when the run starts; the plan is of its default"
    for difference in find_differences(algorithm, sampler, block_size is not None):
        yield f"mismatch    {difference}"
    for setting in (*find_unread(algorithm), *samplers.find_unread(sampler)):
        yield f"no effect   {setting}"


def _token_credit(config: RLConfig, task: Task) -> Iterator[str]:
    """Where advantages per token come from."""
    algorithm = task.algorithm
    if algorithm.value is not None:
        place = {"shared": "the policy", "copy": "a copy of the policy"}[algorithm.value.backbone]
        yield (
            f"value       head on {place}, gamma {algorithm.value.gamma:g}, lambda"
            f" {algorithm.value.lam:g}, clip range {algorithm.value_epsilon:g}, learning rate"
            f" {config.learning_rate * algorithm.value.learning_rate_scale:g}"
        )
    if algorithm.completion_value is not None:
        slices, lam = algorithm.completion_value.slices, algorithm.completion_value.lam
        yield (
            f"credit      of {slices} slices, lambda {lam:g}: {slices - 1} passes more for each"
            f" rollout, and rewards for {task.rollouts_per_step * (slices - 1)} completions more"
        )


def _filters(settings: TaskConfig) -> Iterator[str]:
    if settings.accuracy_band is not None:
        lowest, highest = settings.accuracy_band
        yield f"groups below {lowest:g} or above {highest:g} are left out"
    if settings.strict_len_check:
        yield f"0 for completions within {MARGIN} tokens of the longest"


def _counted(source: str, prompts: list[Prompt]) -> str:
    """How many prompts there are; those of a data set that is not here are not known."""
    return str(len(prompts)) if prompts or not source else f"those of {source}{_ELSEWHERE}"


def _disk(config: RLConfig, raw: Mapping[str, Any], parts: Mapping[str, float]) -> Iterator[str]:
    """The disk of the run; of an adapter, checkpoints hold the adapter alone."""
    model = config.model
    count = count_weights(raw)
    whole, lora = count * BYTES[config.save_dtype or model.dtype], model.lora is not None
    trained = parts["gradients"]
    state = trained + parts["optimiser"] + parts["value"] + parts.get("average", 0)
    # weights are published in bfloat16, those of a pipeline in float32
    downloads: dict[str, float] = {model.path: count * (4 if "_class_name" in raw else 2)}
    vq = own_vq(model)
    if vq is not None and any(layout.needs_vq for layout in get_family(raw).LAYOUTS.values()):
        downloads.setdefault(vq, VQ_BYTES)
    merged = whole if config.merge_adapter else None
    yield from describe_disk(config, trained if lora else whole, state, merged, downloads)
