"""Rollouts of later steps, which an engine writes while the policy is updated.

With `sampler.max_staleness` k the rollouts of steps t + 1 to t + k are asked for once those of step
t are there, so that an update trains on what the weights of at most k updates before it wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmrl.engines.sampler import build_requests
from mmrl.generation.tokens.noise import row_seeds
from mmrl.randomness import generator

if TYPE_CHECKING:
    from mmrl.rollouts.tasks import Task


def ask_ahead(task: Task, step: int, seed: int, rank: int, world_size: int) -> None:
    """Ask the engine of a task for the rollouts of the steps after this one."""
    engine, config = task.config.engine, task.config
    if engine is None or task.upstream is not None:
        return
    for later in range(step + 1, min(step + engine.max_staleness, task.last_step) + 1):
        names, chosen = task.places(rank, world_size), task.step_prompts(later, seed)
        prompts = [chosen[place] for place, _ in names]
        canvas: Any = task.policy.canvas(prompts, config.max_completion_length)
        draws = [generator(seed, "rollout", task.name, later, *name) for name in names]
        requests = build_requests(canvas, engine, row_seeds(draws, len(draws)))
        task.policy.engine.ask_ahead(requests)
