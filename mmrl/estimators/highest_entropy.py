"""The tokens of which the policy is least certain."""

import torch
from torch import Tensor


def highest_entropy(entropy: Tensor, scored: Tensor, share: float) -> Tensor:
    """[K, B, L] bool: the scored tokens of each rollout with the highest entropy over all its
    passes.

    JustGRPO-Fast (arXiv 2601.15165) forms its ratios at the quarter of a completion's positions
    with the highest entropy, which it records while it samples; TRL's `top_entropy_quantile` (arXiv
    2506.01939) masks the policy loss of the other tokens. Here one more forward of all passes
    measures the entropies before the policy moves, and the other tokens are not scored at all.
    Deviations from TRL: the threshold belongs to each rollout and not to a batch, so that what is
    kept of a rollout depends on nothing else but rounding; means are over the tokens that are kept,
    and so is the KL.

    `entropy` [K, B, L] float32 is that of the distributions of the scored tokens, `scored` [K, B,
    L] bool, and `share`, above 0, that of a rollout's scored tokens; what is kept is rounded up. Of
    equal ones the first pass and position wins."""
    passes, rows, length = scored.shape
    # a product such as 0.1 x 10 must not be pushed over the next integer by rounding
    number = (share * scored.sum((0, 2)).double() - 1e-9).ceil()
    each = entropy.masked_fill(~scored, -torch.inf).transpose(0, 1).reshape(rows, -1)
    rank = each.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    kept = (rank < number[:, None]).view(rows, passes, length).transpose(0, 1)
    return kept & scored
