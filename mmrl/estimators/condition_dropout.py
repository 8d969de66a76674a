"""Rollouts that are scored without their prompt, so that both branches of guidance are trained.

Guidance pushes away from what the policy writes without a prompt. Rollouts all have one, so that an
update moves the conditional branch alone; supervised training leaves out the prompts of some pairs
for the same reason (classifier-free guidance, arXiv 2207.12598).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Generator

from mmrl.types import Canvas


def drop_conditions(canvas: Canvas, prob: float, generators: Iterable[Generator]) -> Canvas:
    """Replace the prompts of some rows by those of their unconditional branches.

    Args:
        canvas: B finished rows.
        prob: of each row to lose its prompt.
        generators: one per row; each gives one draw. None is made where `prob` is 0.

    Raises:
        ValueError: rows without an unconditional branch, or with the features of an image.
    """
    if prob == 0:
        return canvas
    if canvas.uncond_tokens is None or canvas.features is not None:
        raise ValueError(
            f"algorithm.cond_dropout_prob is {prob:g}, and these prompts cannot be left out: their"
            " layout has no unconditional branch, or they have images that are not tokens; set it"
            " to 0."
        )
    draws = torch.stack([torch.rand((), generator=each) for each in generators])
    dropped = (draws < prob)[:, None].to(canvas.tokens.device)
    other = canvas.unconditional()
    attend, every = None, torch.ones_like(canvas.response)
    if canvas.attend is not None or other.attend is not None:
        masks = (every if each is None else each for each in (other.attend, canvas.attend))
        attend = torch.where(dropped, *masks)
    return replace(canvas, tokens=other.tokens.where(dropped, canvas.tokens), attend=attend)
