"""Slices of an order of writing: one pass per slice, from the state the slice began with."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.estimators.masks.strategy import Draw
from mmrl.types import Passes, Rollout


def number_of_slices(draw: Draw, steps: int) -> int:
    """How many slices of `steps` different steps are scored."""
    slices = -(-steps // draw.slice_size) if draw.num_slices is None else draw.num_slices
    return max(1, min(slices, steps, draw.sampled_slices or slices))


def slice_of_step(draw: Draw, steps: int) -> Tensor:
    """[steps] int64: consecutive steps share a slice; `num_slices` are as equal as can be."""
    if draw.num_slices is None:
        return torch.arange(steps) // draw.slice_size
    parts = torch.arange(steps).tensor_split(min(draw.num_slices, steps)) if steps else []
    return torch.cat([torch.full_like(p, n) for n, p in enumerate(parts)] or [torch.arange(0)])


def slice_ids(order: Tensor, draw: Draw) -> Tensor:
    """[B, L] int64: the slice in which each position was written, -1 where `order` is negative."""
    ids = torch.full_like(order, -1)
    for row, steps in enumerate(order):
        written = steps >= 0
        distinct, place = steps[written].unique(return_inverse=True)
        ids[row, written] = slice_of_step(draw, len(distinct)).to(ids.device)[place]
    return ids


def plan_slices(rollout: Rollout, order: Tensor, draw: Draw) -> Passes:
    """Each pass hides a slice and all later ones and scores the slice.

    Slices without a position that counts are left out. With `sampled_slices` a row's slices are
    drawn without replacement and weigh (slices) / (sampled), so that the weighted sum is unbiased;
    rows with fewer slices than others have empty passes at the end. Weights carry the factor K, for
    the estimate is a mean over passes and a likelihood of a trace a sum.

    Args:
        rollout: B rows.
        order: [B, L] int64, when each position was written, negative where it was given.
        draw: `slice_size` or `num_slices`, `sampled_slices`, and the generators.
    """
    scorable = rollout.canvas.scorable
    ids = slice_ids(order, draw)
    present = [ids[row, scorable[row]].unique() for row in range(len(ids))]
    present = [found[found >= 0] for found in present]
    chosen = [_sample(found, draw, row) for row, found in enumerate(present)]
    passes = max(1, *(len(c) for c in chosen)) if chosen else 1
    active = torch.full((passes, len(ids)), torch.iinfo(torch.long).max, device=ids.device)
    share = torch.zeros(len(ids), device=ids.device)
    for row, (found, some) in enumerate(zip(present, chosen, strict=True)):
        active[: len(some), row] = some
        share[row] = len(found) / max(1, len(some))
    scored = (ids == active[..., None]) & scorable
    return Passes(ids >= active[..., None], scored, scored * share[:, None] * passes)


def _sample(found: Tensor, draw: Draw, row: int) -> Tensor:
    if draw.sampled_slices is None or draw.sampled_slices >= len(found):
        return found
    order = torch.randperm(len(found), generator=draw.generators[row])[: draw.sampled_slices]
    return found[order.sort().values.to(found.device)]
