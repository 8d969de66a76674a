"""Rollouts that are scored without their prompt, so that both branches of guidance are trained.

Guidance pushes away from what the policy writes without a prompt. Rollouts all have one, so that an
update moves the conditional branch alone; supervised training leaves out the prompts of some pairs
for the same reason (classifier-free guidance, arXiv 2207.12598).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Generator

from mmrl.types import Canvas


def drop_conditions(canvas: Canvas, prob: float, generators: Iterable[Generator]) -> Canvas:
    """Replace the prompts of some of B finished rows by those of their unconditional branches, each
    with probability `prob`, by one draw of its generator; none is made where that is 0. Raises
    ValueError: rows without an unconditional branch, or with the features of an image."""
    if prob == 0:
        return canvas
    draws = torch.stack([torch.rand((), generator=each) for each in generators])
    try:
        return canvas.drop_conditions((draws < prob).to(canvas.counted.device))
    except ValueError as error:
        raise ValueError(
            f"algorithm.cond_dropout_prob is {prob:g}, and these prompts cannot be left out: their"
            " layout has no unconditional branch, or they have images that are not tokens; set it"
            " to 0."
        ) from error
