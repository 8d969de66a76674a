"""Rollouts that were sampled in several batches, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.types import Canvas, Features, Rollout


def concatenate(parts: Sequence[Rollout]) -> Rollout:
    """Rollouts of one task as one batch; shorter rows are padded on the left, never attended to."""
    length = max(part.canvas.tokens.shape[1] for part in parts)
    padded = [_pad_left(part, length - part.canvas.tokens.shape[1]) for part in parts]
    for name in ("attend", "uncond_attend", "valid"):
        _fill_masks(padded, name)
    first, features = padded[0].canvas, [part.canvas.features for part in padded]
    seen = [known for known in features if known is not None]
    tensors = {
        name: _cat([getattr(part.canvas, name) for part in padded])
        for name in ("tokens", "response", "attend", "uncond_tokens", "uncond_attend", "valid")
    }
    return replace(
        padded[0],
        canvas=replace(first, **tensors, features=Features.concatenate(seen) if seen else None),
        written_at=torch.cat([part.written_at for part in padded]),
        logprobs=torch.cat([part.logprobs for part in padded]),
        seeds=_cat([part.seeds for part in padded]),
        forwards=sum(part.forwards for part in padded),
    )


def _fill_masks(parts: list[Rollout], name: str) -> None:
    """Where some parts have a mask, give the others one that is True everywhere."""
    masks = [getattr(part.canvas, name) for part in parts]
    if all(mask is None for mask in masks):
        return
    for n, (part, mask) in enumerate(zip(parts, masks, strict=True)):
        full = torch.ones_like(part.canvas.response) if mask is None else mask
        parts[n] = replace(part, canvas=replace(part.canvas, **{name: full}))


def _cat(tensors: list[Tensor | None]) -> Tensor | None:
    known = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(known) if known else None


def _pad_left(rollout: Rollout, width: int) -> Rollout:
    if width == 0:
        return rollout
    canvas: Canvas = rollout.canvas
    full = torch.ones_like(canvas.response)

    def pad(tensor: Tensor | None, value: int | bool) -> Tensor | None:
        return None if tensor is None else F.pad(tensor, (width, 0), value=value)

    padded = replace(
        canvas,
        tokens=pad(canvas.tokens, 0),
        response=pad(canvas.response, False),
        attend=pad(full if canvas.attend is None else canvas.attend, False),
        uncond_tokens=pad(canvas.uncond_tokens, 0),
        uncond_attend=pad(full if canvas.uncond_attend is None else canvas.uncond_attend, False),
        valid=pad(canvas.valid, False),
        features=canvas.features and canvas.features.pad_left(width),
    )
    return replace(
        rollout,
        canvas=padded,
        written_at=F.pad(rollout.written_at, (width, 0), value=-1),
        logprobs=F.pad(rollout.logprobs, (width, 0)),
    )
