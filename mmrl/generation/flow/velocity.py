"""The velocity that a policy predicts for latents, under guidance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from mmrl.models import Policy


def predict_velocity(
    policy: Policy,
    branches: list[dict[str, Tensor]],
    shape: tuple[int, ...],
    latents: Tensor,
    sigma: Tensor,
    guidance: Guidance,
) -> Tensor:
    """Noise minus clean latents, as the network predicts it; the branches of guidance are one
    batch.

    Args:
        policy: whose network predicts.
        branches: of `conditions`, one for each branch of `guidance`.
        shape: of a latent.
        latents: [B, D], flat.
        sigma: [B] float32 noise levels.

    Returns:
        [B, D] float32.
    """
    noisy, number = latents.unflatten(1, shape), len(branches)
    given = {key: torch.cat([each[key] for each in branches]) for key in branches[0]}
    noisy, sigma = noisy.repeat(number, *[1] * len(shape)), sigma.repeat(number)
    predicted = policy.model(latents=noisy, sigma=sigma, **given).float()
    return policy.network.guide(predicted.chunk(number), guidance).flatten(1)


def conditions(canvas: LatentCanvas, guidance: Guidance) -> list[dict[str, Tensor]]:
    """What the branches of guidance are conditioned on."""
    return [branch.condition() for branch in guidance.build_branches(canvas)]
