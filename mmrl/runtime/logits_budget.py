"""How large logits may be that exist at once.

A batch of a text model has many times more logits than hidden states: 1,024 positions of 126,464
tokens are 518 MB in float32. What only needs a few numbers of each position is computed for some
rows at a time, see `mmrl.estimators.chunked_logprobs` and `mmrl.samplers.streamed`.
"""

import torch

LOGITS_BUDGET = 128 * 2**20
"""Bytes of the largest tensor of logits: 265 rows of 126,464 columns in float32."""


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which probabilities are computed: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


CACHED_BUDGET = 16 * 2**20
"""Bytes of logits that a processor's cache keeps between the product and what is computed from it.
On two cores an update whose logits are scored in such parts takes about a fifth less time."""

FEWEST_ROWS = 256
"""Rows of logits below which reading the output matrix costs more than the cache saves."""


def rows_at_once(columns: int, dtype: torch.dtype = torch.float32) -> int:
    """Rows of logits of the network's `dtype` within the budget, at least one."""
    return max(1, LOGITS_BUDGET // (columns * wide_dtype(dtype).itemsize))


def rows_scored_at_once(columns: int, dtype: torch.dtype = torch.float32) -> int:
    """Rows whose logits are turned into log-probs together: what a cache keeps, but not so few
    that the output matrix is read for a few rows, and never above the budget."""
    cached = CACHED_BUDGET // (columns * wide_dtype(dtype).itemsize)
    return min(max(cached, FEWEST_ROWS), rows_at_once(columns, dtype))
