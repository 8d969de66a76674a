"""What a run would do, without loading its weights: `dry_run=true`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmrl.algorithms.forwards import count_forwards
from mmrl.models.loading import outline
from mmrl.planning.batch_sizes import settle_batch_sizes
from mmrl.planning.cost import count_disk, count_kept, describe_download, describe_seconds
from mmrl.planning.memory import count_policy, estimate, offloaded_phase
from mmrl.planning.network_memory import Needs, combine_needs
from mmrl.planning.plan_page import ELSEWHERE, Plan, add_memory, add_run, add_trained, format_size
from mmrl.planning.planned_launch import for_launch, plan_placement
from mmrl.planning.reward_probe import add_probes, probe_task
from mmrl.planning.run_checks import check_run
from mmrl.pretrained.known import Known, find_here, find_sizes, outline_policy
from mmrl.rl_config import RLConfig
from mmrl.rollouts.pairing import count_candidates, find_differences
from mmrl.rollouts.tasks import Task, completion_length
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.launch import count_processes
from mmrl.runtime.placement import Placement
from mmrl.samplers import count_steps
from mmrl.types import Prompt


@for_launch
def describe(config: RLConfig, world_size: int | None = None) -> Plan:
    """What a run of `world_size` processes, or of those that were launched, would do, its rewards
    on a few samples, and its memory.

    Nothing is downloaded but files that say what a checkpoint is; rewards whose checkpoints are on
    this machine are built and score two dummy samples. Raises ConfigError: settings that cannot
    run. Raises FileNotFoundError, ValueError: a reward that cannot be built."""
    world_size, plan = world_size or count_processes(), Plan(config)
    start = RunDirectory(config.output_dir).starting_point(config)
    tasks, placement = check_run(config, world_size, dry=True), plan_placement(config, world_size)
    runs, chosen = settle_batch_sizes(config.runs, tasks, placement)
    updates = max((run.optimizer_steps for run in runs.values() if not run.frozen), default=0)
    plan.add("batch sizes", *(f"{key}: {size}" for key, size in chosen.items()))
    add_run(plan, start, updates, f"{config.max_steps} steps", world_size)
    plan.add("chain", *_describe_chain(tasks))
    needs = {}
    for name, run in runs.items():
        own = [task for task in tasks.values() if task.config.policy == name]
        needs[name] = _describe_policy(plan, name, run, own, placement)
    add_memory(plan, combine_needs(needs, config.offload), placement)
    kept = f"{count_kept(config)} checkpoints and the final model"
    plan.add("disk", f"{format_size(plan.stored)} for {kept}")
    plan.add("notes", *config.notes)
    return plan


def _describe_policy(
    plan: Plan, policy: str, config: RLConfig, tasks: Sequence[Task], placement: Placement
) -> Needs:
    """Add the rows of a policy and its tasks; return its memory."""
    name, raw = find_sizes(config.model.path)
    _describe_model(plan, policy, config, name, raw)
    kernel, dtype = config.model.attn_implementation, config.model.dtype
    plan.add("computed", *choose_planned(config.bf16, placement, kernel, dtype).reasons)
    if config.sync_ref_model and config.needs_reference:
        moves = f"moves by {config.ref_model_mixup_alpha:g} towards the policy"
        plan.add("reference", f"{moves} every {config.ref_model_sync_steps} optimiser steps")
    elif config.sync_ref_model and not config.frozen:
        plan.add("no effect", "sync_ref_model is true, and no task has a KL to the reference")
    rewards = 0
    for task in tasks:
        for row, text in _describe_task(config, task, placement, raw):
            plan.add(row, text)
        for title, probes in probe_task(config, task):
            add_probes(plan, title, probes)
            rewards += sum(probe.size for probe in probes)
    needs = estimate(config, raw, tasks, placement)
    needs.add_for(offloaded_phase(config, placement), "rewards", rewards)
    return needs


def _describe_chain(tasks: Mapping[str, Task]) -> Iterator[str]:
    """A line for each task that others follow, and below it these."""
    for task in tasks.values():
        depth, above = 0, task.upstream
        while above is not None:
            depth, above = depth + 1, above.upstream
        if depth or task.downstream:
            number = f"{task.config.num_prompts} x {task.config.num_generations}"
            writer = f", {task.config.policy}" if task.config.policy else ""
            back = f", {task.config.chain.reward} of its rewards back" if depth else ""
            yield f"{'  ' * depth}{task.name}: {number} = {task.rollouts_per_step}{writer}{back}"


def _describe_model(
    plan: Plan, policy: str, config: RLConfig, name: str | None, raw: Mapping[str, Any]
) -> None:
    """Add the checkpoints of a policy, and which of its parts are trained."""
    model, less = config.model, config.model.without_parts
    directory = find_here("model.path", model.path, less)
    network = outline_policy(raw) if directory is None else outline(directory, less)
    known = f"; sizes are those of {name}" if name else ""
    here = f"{ELSEWHERE}{known}, {describe_download(network)}" if directory is None else ""
    called = f"{policy}: " if policy else ""
    plan.add("policy", f"{called}{model.path}{here}; weights in {model.dtype}")
    read = Known(model, raw)
    if read.reads_codes and (vq := read.vq) is not None:
        plan.add("images", f"{vq}{ELSEWHERE if find_here('model.vq', vq) is None else ''}")
    if config.frozen:
        plan.add("trained", "nothing, it is frozen")
    else:
        sizes = count_policy(config, network)
        add_trained(plan, network, int(sizes.adapter) // 4)
        plan.stored += count_disk(config, network, sizes)


def _describe_task(
    config: RLConfig, task: Task, placement: Placement, raw: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Rows about a task."""
    settings, algorithm, sampler = task.config, task.algorithm, task.config.sampler
    known, rollouts = Known(config.model, raw), task.rollouts_per_step
    length = completion_length(settings, known)
    weight = "" if settings.weight == 1 else f", weight {settings.weight:g}"
    yield "task", f"{task.name} ({settings.task}{weight})"
    held_out = _counted(settings.eval_prompts, task.eval_prompts)
    unknown = not task.prompts or (settings.eval_prompts and not task.eval_prompts)
    unchecked = "; columns of what is only on the hub could not be checked" if unknown else ""
    given = _counted(settings.prompts, task.prompts)
    if given == held_out and not task.prompts:  # two splits of what is not here
        given = f"{settings.prompts}{ELSEWHERE}, train and held out"
        yield "prompts", f"{given}; columns not checked"
    else:
        yield "prompts", f"{given} to train on, {held_out} held out{unchecked}"
    sampled = f"{settings.num_prompts} prompts x {settings.num_generations} = {rollouts} a step"
    yield "rollouts", f"{sampled}, of {length} response positions each"
    scales = sampler.guidance
    steps = f"{count_steps(sampler, length)} steps of {rollouts * scales.branches} rows"
    image = f", image guidance {scales.image:g}" if scales.image else ""
    yield "sampler", f"{sampler.name}, {steps} (guidance {scales.text:g}{image})"
    draws = f"strategy {algorithm.strategy}, {algorithm.num_draws} draws"
    inner = f"{algorithm.num_iterations} inner iterations, beta {algorithm.beta:g}"
    value = ", value head on a copy of the policy" if algorithm.value else ""
    yield "algorithm", f"{algorithm.name}: {draws}, {inner}{value}"
    world_size, parts, network = placement.world_size, config.num_mini_batches, outline_policy(raw)
    size, block_size = config.micro_batch_size(world_size), network.block_size
    plan = {"num_mini_batches": parts, "block_size": block_size}
    cost = count_forwards(algorithm, count_candidates(algorithm, sampler, length), length, **plan)
    number = f"{rollouts // world_size // parts // size} micro-batches of {size} rollouts"
    passes = f"{cost.total} forward and {cost.backward} backward passes each"
    steps = f"{config.updates_per_step} optimiser steps"
    if not config.frozen:
        yield "update", f"{steps} of {number} per process, {passes}"
    for text in describe_seconds(config, network, task, known, cost, placement):
        yield "time", text
    if algorithm.completion_value is not None:
        more = algorithm.completion_value.slices - 1
        credit = f"{more} passes more for each rollout, and rewards for {rollouts * more}"
        yield "credit", f"{credit} completions more"
    for difference in find_differences(algorithm, sampler, block_size is not None):
        yield "mismatch", difference


def _counted(source: str, prompts: list[Prompt]) -> str:
    """How many prompts there are; those of a data set that is not here are not known."""
    return str(len(prompts)) if prompts or not source else f"those of {source}{ELSEWHERE}"
