"""Lookaheads: partly written rollouts, finished in one pass, for what they are about to become.

Those after each slice of the trace get the rewards of finished rollouts, see
`mmrl.algorithms.completion_value`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mmrl.algorithms.completion_value import slice_trace
from mmrl.generation.kinds import GENERATIONS
from mmrl.runtime.activity import activity, advance
from mmrl.types import Canvas, Prompt, Rollout, Sample

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.models import Policy
    from mmrl.rewards.scoring.scorer import Pending
    from mmrl.rollouts.tasks import Task


def score_lookaheads(
    task: Task, policy: Policy, prompts: Sequence[Prompt], rollout: Rollout
) -> Pending | None:
    """Hand the lookaheads of B rollouts over to the rewards of their task, whose algorithm says in
    how many slices K.

    Returns the scores to come, of the lookaheads after the first slice of the trace, then after the
    second, and so on, group by group; None where the algorithm has no use for them."""
    value = task.algorithm.completion_value
    if value is None:
        return None
    count = (value.slices - 1) * len(prompts)
    pending = task.scorer.begin(count)
    with activity("lookaheads", count):
        for rows, canvas in look_ahead(policy, rollout, value.slices, task.config.rollouts_at_once):
            finished = policy.decode(canvas, prompts[rows])
            pending.add([Sample.of(*each) for each in zip(prompts[rows], finished, strict=True)])
            advance(len(canvas))
    return pending


def credit_tokens(rollout: Rollout, advantages: Tensor) -> Tensor:
    """[B, L], where the rollout is: the advantage of its slice at each written position, of those
    [B, K] of the slices; 0 elsewhere."""
    slices = slice_trace(rollout.trace, rollout.canvas.counted, advantages.shape[1])
    return advantages.to(slices.device).gather(1, slices.clamp(min=0)).where(slices >= 0, 0.0)


def look_ahead(
    policy: Policy, rollout: Rollout, slices: int, rows: int
) -> Iterator[tuple[slice, Canvas]]:
    """Yield rows of B finished ones and their lookaheads, after each of the K slices but the last,
    slice by slice, so many `rows` at once; the policy writes them without gradient."""
    place = slice_trace(rollout.trace, rollout.canvas.counted, slices)
    finish = GENERATIONS[rollout.canvas.kind].finish
    assert finish is not None, "completion_value is checked with the configuration"
    for k in range(1, slices):
        for start in range(0, len(rollout), rows):
            part = slice(start, start + rows)
            yield part, finish(policy, rollout[part], place[part] >= k)
