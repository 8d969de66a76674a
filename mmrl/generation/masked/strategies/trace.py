"""Masks that follow an order of writing: trace, forks and left_to_right.

trace: the states the sampler went through, from the recorded trace. TraceRL (arXiv
2509.06949): slices of `slice_size` recorded steps; StepMerge (d2, arXiv 2509.21474): `num_slices`
cuts of the trace. With slices of one step the scores are the sampler's own log-probs. Positions
after the end of a text are hidden or visible as they were, never scored.

forks: as trace, but only tokens that were drawn are scored, ForkGRPO (arXiv 2609.39859): slices
without any take no pass. The tokens that the sampler took as certain follow from the states, given
the policy that sampled, and are part of what is shown.

left_to_right: position i scored with all before it visible and all from it on hidden, JustGRPO
(arXiv 2601.15165): log pi(y) = sum_i log p(y_i | x, y_<i), exact for a sampler that writes one
token after the other. `slice_size` positions share a pass.

Where attention is causal between blocks, the trace of each block is cut separately: pass i scores
slice i of every block at once, as many passes as a block has slices (TraceRL's block form).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from mmrl.config import at_least, check
from mmrl.generation.masked.hidden import Hidden
from mmrl.generation.masked.strategies.strategy import MaskConfig, hiding
from mmrl.generation.strategy import Draw
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class SliceConfig(MaskConfig):
    """How an order of writing is cut into slices, one pass each."""

    slice_size: Annotated[int, at_least(1)] = 1
    """Recorded steps scored in one pass (strategy: trace, forks), or positions (left_to_right)."""
    num_slices: Annotated[int | None, at_least(1)] = None
    """Cut the trace, or the positions, into so many slices instead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.num_slices is None or self.slice_size == 1
        allowed = f"null with slice_size {self.slice_size}, which says too how a trace is cut"
        check(fits, "algorithm.num_slices", self.num_slices, allowed)


def plan_trace(rollout: Rollout, config: SliceConfig, draw: Draw) -> Passes:
    """One pass per slice of each row's trace."""
    return plan_slices(rollout, rollout.trace, config)


def plan_forks(rollout: Rollout, config: SliceConfig, draw: Draw) -> Passes:
    """One pass per slice of each row's trace in which a token was drawn."""
    return plan_slices(rollout, rollout.trace, config, rollout.drawn)


def plan_left_to_right(rollout: Rollout, config: SliceConfig, draw: Draw) -> Passes:
    """One pass per slice of positions."""
    response = rollout.canvas.response
    order = (response.cumsum(-1) - 1).where(response, -1)
    return plan_slices(rollout, order, config)


def number_of_slices(config: SliceConfig, steps: int) -> int:
    """How many slices of `steps` different steps are scored."""
    slices = -(-steps // config.slice_size) if config.num_slices is None else config.num_slices
    return max(1, min(slices, steps))


def slice_ids(order: Tensor, config: SliceConfig, blocks: Tensor | None = None) -> Tensor:
    """[B, L] int64: the slice of its row in which each position was written, -1 where it was given;
    `order` [B, L] int64 says when, negative where it was given. Consecutive steps share a slice;
    `num_slices` are as equal as can be, the first ones longer. With `blocks` [B, L] int64, from 0
    where `order` is not negative, the trace of each block is cut separately."""
    import torch

    traced = order >= 0
    block = torch.zeros_like(order) if blocks is None else blocks.where(traced, 0)
    step = rank_steps(order, block)
    last = torch.zeros_like(order).scatter_reduce(1, block, step, "amax").gather(1, block)
    if config.num_slices is None:
        ids = step // config.slice_size
    else:
        number = (last + 1).clamp(max=config.num_slices)
        short, longer = (last + 1) // number, (last + 1) % number
        in_longer = step // (short + 1)
        ids = torch.where(in_longer < longer, in_longer, (step - longer) // short)
    return ids.where(traced, -1)


def rank_steps(order: Tensor, block: Tensor) -> Tensor:
    """[B, L] int64: how many different earlier steps wrote in the block of a position; 0 where
    `order` is negative. Arguments as in `slice_ids`, `block` not negative."""
    import torch

    traced = order >= 0
    key = (block * (order.amax() + 2) + order + 1).where(traced, -1)
    ranked, places = key.sort(dim=1)
    new = torch.ones_like(ranked)
    new[:, 1:] = (ranked[:, 1:] != ranked[:, :-1]).long()
    rank = torch.zeros_like(order).scatter(1, places, new.cumsum(1))
    most = order.shape[1] + 1
    first = torch.full_like(order, most).scatter_reduce(1, block, rank.where(traced, most), "amin")
    return (rank - first.gather(1, block)).where(traced, 0)


def plan_slices(
    rollout: Rollout, order: Tensor, config: SliceConfig, among: Tensor | None = None
) -> Passes:
    """Each pass hides a slice and all later ones and scores the slice. `order` [B, L] int64: when
    each position was written, negative where it was given. `among` [B, L] bool: positions that may
    be scored; None for all.

    Slices without a position that counts are left out; rows with fewer slices than others have
    empty passes at the end. Weights carry the factor K, for the estimate is a mean over passes and
    a likelihood of a trace a sum."""
    import torch

    scorable, blocks = rollout.canvas.counted, rollout.canvas.split()
    scorable = scorable if among is None else scorable & among
    ids = slice_ids(order, config, blocks)
    counted = scorable & (ids >= 0)
    rank = rank_steps(ids.where(counted, -1), torch.zeros_like(ids))
    passes, beyond = int(rank.amax()) + 1, torch.iinfo(ids.dtype).max
    active = ids.new_full((len(ids), passes), beyond)
    active = active.scatter_reduce(1, rank, ids.where(counted, beyond), "amin").T
    scored = (ids == active[..., None]) & scorable
    steps = None if blocks is None else blocks * (ids.amax() + 1) + ids
    return Passes(Hidden(ids >= active[..., None]), scored, scored.float() * passes, steps=steps)


TRACE = hiding(
    plan_trace,
    SliceConfig,
    number=lambda config, steps, length: number_of_slices(config, min(steps, length)),
    ordered=True,
    reads_trace=True,
)
FORKS = TRACE._replace(plan=hiding(plan_forks, SliceConfig).plan, of_forks=True)
LEFT_TO_RIGHT = hiding(
    plan_left_to_right,
    SliceConfig,
    number=lambda config, steps, length: number_of_slices(config, length),
    ordered=True,
)
