"""The output matrix, and how large logits may be that exist at once.

A batch of a text model has many times more logits than hidden states: 1,024 positions of 126,464
tokens are 518 MB in float32. What only needs a number for each position is computed for some rows
at a time, see `mmrl.estimators.chunked_logprobs` and
`mmrl.samplers.streamed`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LOGITS_BUDGET = 128 * 2**20
"""Bytes of the largest tensor of logits. On a GPU 265 rows of 126,464 columns are enough for
products that take longer than reading the matrix."""


class OutputHead(NamedTuple):
    """`weight` [C, D] and `bias` [C] of the requested columns, whole while a forward pass runs;
    `wide`: whether logits are at least float32."""

    weight: Tensor
    bias: Tensor | None = None
    wide: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [..., C] of hidden states [..., D]."""
        logits = F.linear(x, self.weight, self.bias)
        return logits.to(wide_dtype(logits.dtype)) if self.wide else logits

    def cast(self, x: Tensor) -> tuple[Tensor, OutputHead]:
        """Hidden states and head in the precision that autocast would compute them in, converted
        once for all parts."""
        kind = x.device.type
        if not torch.is_autocast_enabled(kind) or x.dtype == torch.float64:
            return x, self
        dtype = torch.get_autocast_dtype(kind)
        bias = None if self.bias is None else self.bias.to(dtype)
        return x.to(dtype), OutputHead(self.weight.to(dtype), bias, self.wide)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which probabilities are computed: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def rows_at_once(columns: int, dtype: torch.dtype = torch.float32) -> int:
    """Rows of logits of the network's `dtype` within the budget, at least one."""
    return max(1, LOGITS_BUDGET // (columns * wide_dtype(dtype).itemsize))
