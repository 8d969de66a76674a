"""Rollouts that were sampled in several batches, as one."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.features import Features
from mmrl.types import Canvas, Rollout

PADDING = {
    "tokens": 0,
    "response": False,
    "attend": False,
    "uncond_tokens": 0,
    "uncond_attend": False,
    "image_uncond_tokens": 0,
    "image_uncond_attend": False,
    "valid": False,
    "blocks": 0,
}
"""Tensors of a canvas, and what they hold at padding."""
ATTEND = {
    "attend": "tokens",
    "uncond_attend": "uncond_tokens",
    "image_uncond_attend": "image_uncond_tokens",
}
"""Masks of a canvas, by the tokens they belong to."""


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
            **{name: _concatenate_field(canvases, name) for name in PADDING},
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
    canvas, full = rollout.canvas, torch.ones_like(rollout.canvas.response)
    known = {name: getattr(canvas, name) for name in PADDING}
    padded = {name for name, tokens in ATTEND.items() if known[tokens] is not None}
    known |= {name: full for name in padded if known[name] is None}
    tensors = {
        name: None if tensor is None else F.pad(tensor, (width, 0), value=PADDING[name])
        for name, tensor in known.items()
    }
    features = canvas.features and canvas.features.pad_left(width)
    return replace(
        rollout,
        canvas=replace(canvas, **tensors, features=features),
        written_at=F.pad(rollout.written_at, (width, 0), value=-1),
        logprobs=F.pad(rollout.logprobs, (width, 0)),
    )
