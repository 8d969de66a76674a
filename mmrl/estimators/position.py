"""The position term: how likely it was that these positions were written now, and not others.

Plackett-Luce over confidences (MAPG, arXiv 2607.15200): positions are written one after the other,
each with probability c_i / sum of c_j over the positions still hidden (of its block, where there
are blocks), c the probability of the likeliest token. Every written position has one factor, which
is added to the log-prob of its token. Deviations: within a step the order is that of the sampler's
log-probs, because its own ranking is not recorded; confidences are taken without temperature.
"""

from __future__ import annotations

import torch
from torch import Tensor


def plackett_luce(
    confidence: Tensor, hidden: Tensor, order: Tensor, blocks: Tensor | None
) -> Tensor:
    """Log-probability that each hidden position is the next to be written when its turn comes.

    Args:
        confidence: [B, L] float32 log-confidences at hidden positions.
        hidden: [B, L] bool, positions that compete.
        order: [B, L] int64 ranks of writing.
        blocks: [B, L] int64 or None; positions compete within their block.

    Returns:
        [B, L] float32, 0 where not hidden.
    """
    # last written first, so that a running log-sum-exp covers all that were still open
    places = order.argsort(-1, descending=True)
    ranked = confidence.gather(-1, places)
    open_then = hidden.gather(-1, places)
    block = torch.zeros_like(places) if blocks is None else blocks.gather(-1, places)
    rest = torch.zeros_like(ranked)
    for number in block[open_then].unique():
        own = open_then & (block == number)
        running = ranked.masked_fill(~own, -1e30).logcumsumexp(-1)
        rest = torch.where(own, running, rest)
    factors = torch.where(open_then, ranked - rest, 0.0)
    return torch.zeros_like(confidence).scatter(-1, places, factors)
