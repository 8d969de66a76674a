"""complementary: a random mask and its complement, so that each token is scored once per pair.

coupled-GRPO (arXiv 2506.20639; with `include_full` also a pass that hides everything) and ESPO
(arXiv 2512.03759). l of n positions are hidden, l drawn as in `uniform`, then the other n - l, with
weights n / l and n / (n - l): both numbers run over 1 .. n - 1, and l = n, which leaves nothing for
the second pass, counts double, so that the mean over the pair is the evidence bound over the full
range of levels. The full pass has weight 0 in that estimate and the pair makes up for its place.
"""

import torch

from mmrl.estimators.masks.draws import counts_at, lowest_of, row_levels, row_uniforms
from mmrl.estimators.masks.strategy import Draw, passes_of
from mmrl.types import Passes, Rollout


def number(draw: Draw, steps: int, length: int) -> int:
    """Two passes per draw, three with the full one."""
    return draw.num_draws * (2 + draw.include_full)


def plan(rollout: Rollout, draw: Draw) -> Passes:
    """`num_draws` pairs, each followed by its full pass where that is included."""
    where = rollout.canvas.scorable
    total = where.sum(-1)
    scale = 1.5 if draw.include_full else 1.0
    hidden, weight = [], []
    for _ in range(draw.num_draws):
        level = row_levels(draw.generators, where.device)
        counts = counts_at(level, where, draw.min_mask_rate, draw.max_mask_rate)
        chosen = lowest_of(row_uniforms(where, draw.generators), where, counts)
        first = torch.where(counts < total, 1.0, 2.0) * total / counts
        second = total / (total - counts).clamp(min=1)
        hidden += [chosen, where & ~chosen]
        weight += [chosen * first[:, None] * scale, (where & ~chosen) * second[:, None] * scale]
        if draw.include_full:
            hidden.append(where)
            weight.append(torch.zeros_like(weight[0]))
    return passes_of(rollout.canvas, torch.stack(hidden), torch.stack(weight).float())
