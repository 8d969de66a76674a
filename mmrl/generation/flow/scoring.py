"""Velocities that a policy predicts, under guidance, and the log-probs of recorded steps."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.types import Passes, Scores
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from mmrl.models import Policy


def score(
    policy: Policy, canvas: LatentCanvas, passes: Passes, guidance: Guidance, temperature: float
) -> Scores:
    """Log-probs of what passes show of latents, and what their query reads beside them: Gaussians
    of recorded steps, predictions of latents that are noised again, or latents that are finished
    again.

    One forward per pass, over the rows that it scores. Arguments as of `mmrl.estimators.score`;
    steps of latents have no temperature.
    """
    query: Any = passes.query
    found = []
    for k in range(len(passes)):
        found.append(_score_pass(policy, canvas, passes, k, guidance))
        canvas = query.follow(canvas, k, found[-1])
    sizes = torch.tensor([prod(shape) for shape in canvas.shapes], device=passes.scored.device)
    stacked = [torch.stack(each) for each in zip(*found, strict=True)]
    return query.collect(stacked, passes.scored, sizes)


def _score_pass(
    policy: Policy, canvas: LatentCanvas, passes: Passes, k: int, guidance: Guidance
) -> tuple[Tensor, ...]:
    """What the query reads of a pass, tensors [B] and [B, D], 0 in rows that are not scored."""
    scored, rows = passes.scored[k].any(-1), canvas.rows
    if not policy.shares_forwards and not bool(scored.all()):
        # a pass that scores nothing has a (zero) gradient too, on every process
        rows = rows[scored] if bool(scored.any()) else rows[:1]
        canvas, passes = canvas[rows], passes[rows]
    outputs: tuple[Tensor, ...] = ()
    for shape, own, part in canvas.by_shape():
        found = _score_shape(policy, part, passes[own], k, shape, guidance)
        outputs = outputs or tuple(x.new_zeros(len(scored), *x.shape[1:]) for x in found)
        pairs = zip(outputs, found, strict=True)
        outputs = tuple(whole.index_put((rows[own],), value) for whole, value in pairs)
    return outputs


def _score_shape(
    policy: Policy,
    canvas: LatentCanvas,
    passes: Passes,
    k: int,
    shape: tuple[int, ...],
    guidance: Guidance,
) -> tuple[Tensor, ...]:
    """The same of rows of one shape, all of which are scored."""
    query: Any = passes.query
    state, sigma = query.show(canvas, k)
    number, branches = prod(shape), conditions(canvas, guidance)
    state, beyond = state[:, :number], state.shape[1] - number
    velocity = predict_velocity(policy, branches, shape, state, sigma, guidance)
    found = query.read(canvas, k, state, sigma, velocity)
    return tuple(F.pad(each, (0, beyond)) if each.dim() > 1 else each for each in found)


def predict_velocity(
    policy: Policy,
    branches: list[dict[str, Tensor]],
    shape: tuple[int, ...],
    latents: Tensor,
    sigma: Tensor,
    guidance: Guidance,
) -> Tensor:
    """[B, D] float32, noise minus clean latents, as the network predicts it of flat latents [B, D]
    of a shape at noise levels [B] float32; the branches of guidance, see `conditions`, are one
    batch."""
    noisy, number = latents.unflatten(1, shape), len(branches)
    given = {key: torch.cat([each[key] for each in branches]) for key in branches[0]}
    noisy, sigma = noisy.repeat(number, *[1] * len(shape)), sigma.repeat(number)
    predicted = policy.model(latents=noisy, sigma=sigma, **given).float()
    return policy.network.guide(predicted.chunk(number), guidance).flatten(1)


def conditions(canvas: LatentCanvas, guidance: Guidance) -> list[dict[str, Tensor]]:
    """What the branches of guidance are conditioned on."""
    return [branch.condition() for branch in guidance.build_branches(canvas)]
