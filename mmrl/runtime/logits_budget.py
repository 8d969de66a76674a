"""How large logits may be that exist at once.

A batch of a text model has many times more logits than final states: 1,024 positions of 126,464
tokens are 518 MB in float32. What only needs a few numbers of each position is computed for some
rows at a time, see `mmrl.generation.tokens.scoring.chunked_logprobs`, and `streamed` in
`mmrl.generation.masked.samplers`.
"""

import torch

LOGITS_BUDGET = 128 * 2**20
"""Bytes of the largest tensor of logits on a CPU: 265 rows of 126,464 columns in float32."""

DEVICE_BUDGET = 2**30
"""The same on a GPU, where each part costs launches, and none is kept in a cache."""

CACHED_BUDGET = 16 * 2**20
"""Bytes of logits that a processor's cache keeps between the product and what is computed from it.
On two cores an update whose logits are scored in such parts takes about a fifth less time."""

FEWEST_ROWS = 256
"""Rows of logits below which reading the output matrix costs more than the cache saves."""


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which probabilities are computed: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def rows_at_once(
    columns: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> int:
    """Rows of logits of the network's `dtype` within the budget of a device, at least one."""
    budget = LOGITS_BUDGET if torch.device(device).type == "cpu" else DEVICE_BUDGET
    return max(1, budget // (columns * wide_dtype(dtype).itemsize))


def rows_scored_at_once(
    columns: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> int:
    """Rows whose logits are turned into log-probs together: on a CPU what a cache keeps, but not so
    few that the output matrix is read for a few rows, and never above the budget."""
    most = rows_at_once(columns, dtype, device)
    if torch.device(device).type != "cpu":
        return most
    cached = CACHED_BUDGET // (columns * wide_dtype(dtype).itemsize)
    return min(max(cached, FEWEST_ROWS), most)
