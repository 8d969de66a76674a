"""Mask strategies: which positions of a finished canvas are hidden again to score them.

A strategy turns finished rollouts into `Passes`: K draws of hidden positions, the positions scored
in each, and the weight of each score. Passes are drawn once per inner iteration and used for the
new, the old and the reference policy alike. Draws come from one generator per row, so they do not
depend on batch composition, process count or micro-batches.

A new strategy is one function in a file of its own, and one line in `mmrl.estimators.MASKS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mmrl.types import Passes, Rollout


@dataclass(frozen=True)
class Draw:
    """What a strategy may use besides the rollout.

    Attributes:
        iteration: inner iteration, 0 .. num_iterations - 1.
        num_iterations: how often each rollout is used.
        num_draws: K.
        min_mask_rate: lowest share of hidden positions.
        generators: one per row.
    """

    iteration: int
    num_iterations: int
    num_draws: int
    min_mask_rate: float
    generators: Sequence[Generator]


def full(rollout: Rollout, draw: Draw) -> Passes:
    """Every response position hidden: all tokens scored given the prompt (d1, arXiv 2504.12216)."""
    hidden = rollout.canvas.response.expand(draw.num_draws, -1, -1)
    return _scored(hidden)


def random(rollout: Rollout, draw: Draw) -> Passes:
    """Each response position hidden with a rate that rises over the inner iterations.

    rate_i = min(r0 + (1 - r0) (i + 1) / mu, 0.999) with r0 = `min_mask_rate`, iteration i of mu:
    UniGRPO (arXiv 2505.15809) with r0 near 0, MaskGRPO for images (arXiv 2510.02880) with a high
    r0, which leaves out the easy levels. A row whose draw hides nothing hides its first drawn
    position, so that every rollout is scored.
    """
    r0 = draw.min_mask_rate
    rate = min(r0 + (1 - r0) * (draw.iteration + 1) / draw.num_iterations, 0.999)
    response = rollout.canvas.response
    uniforms = torch.stack(
        [row_uniforms(response, draw.generators) for _ in range(draw.num_draws)]
    ).masked_fill(~response, 2.0)
    lowest = uniforms.argmin(-1, keepdim=True)
    hidden = (uniforms < rate).scatter(-1, lowest, True) & response
    return _scored(hidden)


def row_uniforms(response: Tensor, generators: Sequence[Generator]) -> Tensor:
    """[B, L] uniforms at response positions (0 elsewhere), each row from its own generator."""
    out = torch.zeros(response.shape, device=response.device)
    counts = response.sum(1).tolist()
    draws = [torch.rand(n, generator=g) for n, g in zip(counts, generators, strict=True)]
    out[response] = torch.cat(draws).to(response.device)
    return out


def _scored(hidden: Tensor) -> Passes:
    """Every hidden position scored with weight 1."""
    return Passes(hidden, hidden, hidden.float())
