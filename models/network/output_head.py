"""The output matrix, handed to what needs a few numbers of each position and not its logits."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class OutputHead(NamedTuple):
    """`weight` [C, D] and `bias` [C] of the requested columns, whole while a forward pass runs;
    `wide`: whether logits are at least float32."""

    weight: Tensor
    bias: Tensor | None = None
    wide: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [..., C] of hidden states [..., D]."""
        return self._widened(F.linear(x, self.weight, self.bias))

    def by_column(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Logits [C, n] of hidden states [n, D], column by column; into `out`, of their dtype.

        Where n is small, threads share this product along C; along n they have little to share.
        """
        if self.bias is None:
            return self._widened(torch.mm(self.weight, x.T, out=out))
        return self._widened(torch.addmm(self.bias[:, None], self.weight, x.T, out=out))

    def _widened(self, logits: Tensor) -> Tensor:
        return logits.to(torch.promote_types(logits.dtype, torch.float32)) if self.wide else logits

    def take(self, start: int, stop: int) -> OutputHead:
        """The head of some of the columns."""
        bias = None if self.bias is None else self.bias[start:stop]
        return OutputHead(self.weight[start:stop], bias, self.wide)

    def cast(self, x: Tensor) -> tuple[Tensor, OutputHead]:
        """Hidden states and head in the precision that autocast would compute them in, converted
        once for all parts."""
        kind = x.device.type
        if not torch.is_autocast_enabled(kind) or x.dtype == torch.float64:
            return x, self
        dtype = torch.get_autocast_dtype(kind)
        bias = None if self.bias is None else self.bias.to(dtype)
        return x.to(dtype), OutputHead(self.weight.to(dtype), bias, self.wide)
