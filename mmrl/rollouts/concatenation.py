"""Rollouts that were sampled in several batches, as one."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.features import Features
from mmrl.types import CANVAS_PADDING, Canvas, Rollout


def concatenate(parts: Sequence[Rollout]) -> Rollout:
    """Rollouts of one task as one batch; shorter rows are padded on the left, never attended to."""
    length = max(part.canvas.tokens.shape[1] for part in parts)
    padded = [_pad_left(part, length - part.canvas.tokens.shape[1]) for part in parts]
    canvases = [part.canvas for part in padded]
    features = [each.features for each in canvases if each.features is not None]
    seeds = [part.seeds for part in padded if part.seeds is not None]
    return replace(
        padded[0],
        canvas=replace(
            canvases[0],
            **{name: _concatenate_field(canvases, name) for name in CANVAS_PADDING},
            features=Features.concatenate(features) if features else None,
        ),
        written_at=torch.cat([part.written_at for part in padded]),
        logprobs=torch.cat([part.logprobs for part in padded]),
        seeds=torch.cat(seeds) if seeds else None,
        forwards=sum(part.forwards for part in padded),
    )


def _concatenate_field(canvases: Sequence[Canvas], name: str) -> Tensor | None:
    """A tensor of all canvases; if only some have a mask, the others get one that is True."""
    own = [(getattr(canvas, name), canvas.response) for canvas in canvases]
    if all(tensor is None for tensor, _ in own):
        return None
    return torch.cat([torch.ones_like(full) if tensor is None else tensor for tensor, full in own])


def _pad_left(rollout: Rollout, width: int) -> Rollout:
    if width == 0:
        return rollout
    return replace(
        rollout,
        canvas=rollout.canvas.pad_left(width),
        written_at=F.pad(rollout.written_at, (width, 0), value=-1),
        logprobs=F.pad(rollout.logprobs, (width, 0)),
    )
