"""trace: the states the sampler went through, from the recorded `written_at`.

TraceRL (arXiv 2509.06949): slices of `slice_size` recorded steps; StepMerge (d2, arXiv 2509.21474):
`num_slices` cuts of the trace; AGRPO (arXiv 2510.04019): `sampled_slices` of the recorded steps.
With slices of one step the scores are the sampler's own log-probs. Positions after the end of a
text are hidden or visible as they were, never scored.
"""

import torch
from torch import Tensor

from mmrl.estimators.masks.slices import number_of_slices, plan_slices
from mmrl.estimators.masks.strategy import Draw
from mmrl.types import Passes, Rollout


def number(draw: Draw, steps: int, length: int) -> int:
    """Slices of the recorded steps, of which there are no more than positions."""
    return number_of_slices(draw, min(steps, length))


def plan(rollout: Rollout, draw: Draw) -> Passes:
    """One pass per slice of each row's trace.

    Raises:
        ValueError: a row has response positions but no trace.
    """
    order = rollout.written_at.masked_fill(~rollout.canvas.response, -1)
    untraced = rollout.canvas.scorable.any(-1) & (order < 0).all(-1)
    if bool(untraced.any()):
        raise ValueError(
            f"mask: trace needs rollouts that record when each position was written, and"
            f" {int(untraced.sum())} of {len(order)} have no trace; use another mask strategy, or"
            " roll out with a sampler that records one."
        )
    passes = plan_slices(rollout, order, draw)
    if draw.position:
        passes.order = writing_order(rollout)
    return passes


def writing_order(rollout: Rollout) -> Tensor:
    """[B, L] int64 ranks: by step, within a step by the sampler's log-prob, most confident first.

    A fixed order, the same for new and old policy: the sampler's ranking is not recorded.
    """
    by_confidence = rollout.logprobs.argsort(dim=-1, descending=True, stable=True)
    steps = rollout.written_at.gather(-1, by_confidence)
    places = by_confidence.gather(-1, steps.argsort(dim=-1, stable=True))
    ranks = torch.arange(places.shape[-1], device=places.device).expand_as(places)
    return torch.zeros_like(places).scatter(-1, places, ranks)
