"""trace: the states the sampler went through, from the recorded `written_at`.

TraceRL (arXiv 2509.06949): slices of `slice_size` recorded steps; StepMerge (d2, arXiv 2509.21474):
`num_slices` cuts of the trace; AGRPO (arXiv 2510.04019): `sampled_slices` of the recorded steps.
With slices of one step the scores are the sampler's own log-probs. Positions after the end of a
text are hidden or visible as they were, never scored.

Where attention is causal between blocks, the trace of each block is cut separately: pass i scores
slice i of every block at once, as many passes as a block has slices (TraceRL's block form).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mmrl.config import ConfigError, check, check_choice
from mmrl.estimators.masks.strategy import Draw, MaskConfig, Strategy
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


POSITION_TERMS = ("none", "plackett_luce")


@dataclass(kw_only=True)
class SliceConfig(MaskConfig):
    """How an order of writing is cut into slices, one pass each."""

    slice_size: int = 1
    """Recorded steps scored in one pass (mask: trace), or positions (mask: left_to_right)."""
    num_slices: int | None = None
    """Cut the trace, or the positions, into so many slices instead."""
    sampled_slices: int | None = None
    """Score so many slices of a rollout, drawn at random; null scores all."""

    def __post_init__(self) -> None:
        for key in ("slice_size", "num_slices", "sampled_slices"):
            number = getattr(self, key)
            check(number is None or number >= 1, f"algorithm.{key}", number, "at least 1")
        if self.num_slices is not None and self.slice_size != 1:
            raise ConfigError(
                f"algorithm.num_slices is {self.num_slices} and slice_size {self.slice_size}: both"
                " say how a trace is cut; set num_slices to null or slice_size to 1."
            )


@dataclass(kw_only=True)
class TraceConfig(SliceConfig):
    """Options of the trace."""

    choices: ClassVar = {"position_term": POSITION_TERMS}

    position_term: str = "none"
    """Whether the choice of positions is scored too: none or plackett_luce."""

    def __post_init__(self) -> None:
        check_choice("algorithm.position_term", self.position_term, POSITION_TERMS)


def number(config: TraceConfig, steps: int, length: int) -> int:
    """Slices of the recorded steps, of which there are no more than positions."""
    return number_of_slices(config, min(steps, length))


def plan(rollout: Rollout, config: TraceConfig, draw: Draw) -> Passes:
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
    passes = plan_slices(rollout, order, config, draw)
    if config.position_term != "none":
        passes.order = writing_order(rollout)
    return passes


def writing_order(rollout: Rollout) -> Tensor:
    """[B, L] int64 ranks: by step, within a step by the sampler's log-prob, most confident first.

    A fixed order, the same for new and old policy: the sampler's ranking is not recorded.
    """
    by_confidence = rollout.logprobs.argsort(dim=-1, descending=True, stable=True)
    steps = rollout.written_at.gather(-1, by_confidence)
    # the inverse of a permutation is its argsort
    return by_confidence.gather(-1, steps.argsort(dim=-1, stable=True)).argsort(-1)


def number_of_slices(config: SliceConfig, steps: int) -> int:
    """How many slices of `steps` different steps are scored."""
    slices = -(-steps // config.slice_size) if config.num_slices is None else config.num_slices
    return max(1, min(slices, steps, config.sampled_slices or slices))


def slice_of_step(config: SliceConfig, steps: int) -> Tensor:
    """[steps] int64: consecutive steps share a slice; `num_slices` are as equal as can be."""
    import torch

    if config.num_slices is None:
        return torch.arange(steps) // config.slice_size
    slices = min(config.num_slices, max(1, steps))
    short, longer = divmod(steps, slices)
    sizes = [short + (n < longer) for n in range(slices)]
    return torch.arange(slices).repeat_interleave(torch.tensor(sizes))


def slice_ids(order: Tensor, config: SliceConfig) -> Tensor:
    """[B, L] int64: the slice in which each position was written, -1 where `order` is negative."""
    ids = order.new_full(order.shape, -1)
    for row, steps in enumerate(order):
        written = steps >= 0
        distinct, place = steps[written].unique(return_inverse=True)
        ids[row, written] = slice_of_step(config, len(distinct)).to(ids.device)[place]
    return ids


def block_slice_ids(order: Tensor, blocks: Tensor, config: SliceConfig) -> Tensor:
    """[B, L] int64: the slice of its block in which each position was written, -1 elsewhere.

    Args:
        order: [B, L] int64, when each position was written, negative where it was given.
        blocks: [B, L] int64, the block of each position.
        config: how the trace of a block is cut.
    """
    ids = order.new_full(order.shape, -1)
    for block in range(int(blocks.max()) + 1):
        inside = blocks == block
        ids = ids.where(~inside, slice_ids(order.masked_fill(~inside, -1), config))
    return ids


def plan_slices(rollout: Rollout, order: Tensor, config: SliceConfig, draw: Draw) -> Passes:
    """Each pass hides a slice and all later ones and scores the slice.

    Slices without a position that counts are left out. With `sampled_slices` a row's slices are
    drawn without replacement and weigh (slices) / (sampled), so that the weighted sum is unbiased;
    rows with fewer slices than others have empty passes at the end. Weights carry the factor K, for
    the estimate is a mean over passes and a likelihood of a trace a sum.

    Args:
        rollout: B rows.
        order: [B, L] int64, when each position was written, negative where it was given.
        config: how it is cut.
        draw: a generator per row.
    """
    import torch

    scorable = rollout.canvas.scorable
    blocks = rollout.canvas.response_blocks
    ids = slice_ids(order, config) if blocks is None else block_slice_ids(order, blocks, config)
    present = [ids[row, scorable[row]].unique() for row in range(len(ids))]
    present = [found[found >= 0] for found in present]
    chosen = [_sample(found, config, draw, row) for row, found in enumerate(present)]
    passes = max([1, *map(len, chosen)])
    active = torch.full((passes, len(ids)), torch.iinfo(torch.long).max, device=ids.device)
    share = torch.zeros(len(ids), device=ids.device)
    for row, (found, some) in enumerate(zip(present, chosen, strict=True)):
        active[: len(some), row] = some
        share[row] = len(found) / max(1, len(some))
    scored = (ids == active[..., None]) & scorable
    steps = None if blocks is None else blocks * (ids.amax() + 1) + ids
    return Passes(ids >= active[..., None], scored, scored * share[:, None] * passes, steps=steps)


def _sample(found: Tensor, config: SliceConfig, draw: Draw, row: int) -> Tensor:
    """Some of the slices of a row, in order."""
    import torch

    if config.sampled_slices is None or config.sampled_slices >= len(found):
        return found
    order = torch.randperm(len(found), generator=draw.generators[row])[: config.sampled_slices]
    return found[order.sort().values.to(found.device)]


TRACE = Strategy(plan, TraceConfig, number, ordered=True, reads_trace=True)
