"""The tasks of a step, those that follow each other one after the other.

Completions go down a chain as prompts, rewards come up it: the reward of a completion has, beside
its own, the mean (or maximum, or sum) of the rewards of what was written from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accelerate.utils import gather_object

from mmrl.engines.sampler import build_requests
from mmrl.generation.tokens.noise import row_seeds
from mmrl.randomness import generator
from mmrl.rollouts.chain_order import order_tasks, upstream_of
from mmrl.rollouts.dynamic_sampling import fill_groups
from mmrl.rollouts.held_out import evaluate
from mmrl.rollouts.rollout import Groups, RolloutBatch, sample_groups
from mmrl.types import Completion, Prompt

if TYPE_CHECKING:
    from mmrl.models import Policy
    from mmrl.rollouts.task_config import ChainConfig, TaskConfig
    from mmrl.rollouts.tasks import Task

COMBINE = {"mean": lambda x: sum(x) / len(x), "max": max, "sum": sum}


def link_tasks(tasks: Mapping[str, Task], settings: Mapping[str, TaskConfig]) -> dict[str, Task]:
    """The tasks in the order in which they are sampled, each with those before and after it."""
    for name, config in settings.items():
        above = upstream_of(config)
        if above is not None:
            tasks[name].upstream = tasks[above]
            tasks[above].downstream.append(tasks[name])
    return {name: tasks[name] for name in order_tasks(settings)}


def sample_chains(
    tasks: Mapping[str, Task], step: int, seed: int, rank: int, world_size: int
) -> dict[str, Groups]:
    """The groups of one step of all tasks; see `sample_groups`."""
    place = step, seed, rank, world_size
    found: dict[str, Groups] = {}
    for name, task in tasks.items():
        if task.upstream is None:
            found[name] = sample_groups(task, task.policy, *place)
            ask_ahead(task, *place)
            continue
        above = found[task.upstream.name]
        written = [sample.completion for sample in above.samples]
        prompts, empty = follow(task, above.prompts, written, task.policy)
        group = task.config.num_generations
        size = above.task.config.num_generations
        firsts = [prompt * size + sample for prompt, sample in above.names]
        names = [(first, n) for first in firsts for n in range(group)]
        repeated = [prompt for prompt in prompts for _ in range(group)]
        groups = sample_groups(task, task.policy, *place, names=names, prompts=repeated)
        groups.metrics["prompts/empty"] = float(sum(gather_object([empty])))
        found[name] = groups
    return found


def ask_ahead(task: Task, step: int, seed: int, rank: int, world_size: int) -> None:
    """Ask the engine of a task for the rollouts of further steps, which it writes while the policy
    is updated: with `sampler.max_staleness` k those of k steps, so that an update trains on what
    the weights of at most k updates before it wrote."""
    engine, config = task.config.engine, task.config
    if engine is None:
        return
    for later in range(step + 1, min(step + engine.max_staleness, task.last_step) + 1):
        names, chosen = task.places(rank, world_size), task.step_prompts(later, seed)
        prompts = [chosen[place] for place, _ in names]
        canvas: Any = task.policy.canvas(prompts, config.max_completion_length)
        draws = [generator(seed, "rollout", task.name, later, *name) for name in names]
        requests = build_requests(canvas, engine, row_seeds(draws, len(draws)))
        task.policy.engine.ask_ahead(requests)


def score_chains(groups: Mapping[str, Groups]) -> dict[str, RolloutBatch]:
    """The scored rollouts of all tasks, those that follow others first, in the order of `groups`.
    Raises RewardError, Interrupted: see `fill_groups`."""
    found: dict[str, RolloutBatch] = {}
    for name, own in reversed([*groups.items()]):
        inherited = {
            task.name: pass_up(found[task.name], task.config.chain, task.config.num_generations)
            for task in own.task.downstream
            if task.config.chain.reward != "none"
        }
        found[name] = fill_groups(own, own.task.policy, inherited)
    return {name: found[name] for name in groups}


def pass_up(batch: RolloutBatch, chain: ChainConfig, size: int) -> list[float | None]:
    """What each completion gets of the rewards of its groups of `size` rollouts; None where none of
    these has one."""
    rewards = batch.rewards.view(-1, size).tolist()
    known = [[value for value in own if value == value] for own in rewards]  # NaN is none
    return [chain.weight * COMBINE[chain.reward](own) if own else None for own in known]


def follow(
    task: Task,
    prompts: Sequence[Prompt],
    written: Sequence[Completion],
    policy: Policy,
    held_out: bool = False,
) -> tuple[list[Prompt], int]:
    """The prompts of a task from what was written to others, and how many stay as they were: an
    empty one, or one that the policy cannot take."""
    chain, found, kept = task.config.chain, [], 0
    for prompt, completion in zip(prompts, written, strict=True):
        text = str(completion)
        text = text.rpartition(chain.marker)[2] if chain.marker else text
        first = task.known[held_out].get(prompt.place or prompt.id, prompt)
        said = first.text if chain.reward_prompt == "original" else None
        own = replace(first, messages=None, text=text.strip(), original=said)
        if not own.text or not policy.fits(own, task.config.max_completion_length):
            own, kept = replace(own, text=first.text), kept + 1
        found.append(own)
    return found, kept


def lead(task: Task, prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    """Held-out prompts of a task as those before it in its chain write them, one each."""
    above = task.upstream
    if above is None:
        return list(prompts)
    own = [above.known[True].get(prompt.place or prompt.id, prompt) for prompt in prompts]
    given, rows = lead(above, own, seed), above.config.rollouts_at_once
    found = evaluate(
        above.policy, given, above.eval_sampler, None, seed, rows, length=above.eval_length
    )
    return follow(task, given, found.completions, task.policy, held_out=True)[0]
