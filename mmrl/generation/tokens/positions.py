"""Chosen positions of rows, found with one read of the device.

Indexing with bools asks a GPU how many entries are True, each time it is done. Here the host
asks once, and everything else that is done at the positions knows their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Positions:
    """The N True entries of `where` [B, L] bool in row-major order: their `index` [N] int64 into
    the flattened `where`, their `counts` [B] int64 in each row, and the same `numbers` on the host.
    """

    where: Tensor
    index: Tensor
    counts: Tensor
    numbers: list[int]

    @staticmethod
    def find(where: Tensor) -> Positions:
        """Find the True entries of [B, L] bool. The host waits for the device once."""
        counts = where.sum(1)
        numbers = counts.tolist()
        index = torch.nonzero_static(where.flatten(), size=sum(numbers)).squeeze(1)
        return Positions(where, index, counts, numbers)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def rows(self) -> Tensor | None:
        """[b] int64: the rows with a position; None where all have one."""
        some = sum(number > 0 for number in self.numbers)
        if some == len(self.numbers):
            return None
        return torch.nonzero_static(self.counts > 0, size=some).squeeze(1)

    def keep_rows(self, rows: Tensor) -> Positions:
        """The same positions in a batch of some rows, [b] int64, with all that have any."""
        length = self.where.shape[1]
        place = torch.zeros_like(self.counts)
        place[rows] = torch.arange(len(rows), device=rows.device)
        moved = place[self.index // length] * length + self.index % length
        numbers = [number for number in self.numbers if number] or [0]
        return Positions(self.where[rows], moved, self.counts[rows], numbers)

    def take(self, x: Tensor) -> Tensor:
        """The entries [N, …] of x [B, L, …] at the positions."""
        return x.flatten(0, 1).index_select(0, self.index)

    def spread(self, values: Tensor, fill: float) -> Tensor:
        """[B, L] with `values` [N] at the positions and `fill` elsewhere."""
        flat = values.new_full((self.where.numel(),), fill)
        return flat.index_copy_(0, self.index, values).view(self.where.shape)

    def write(self, x: Tensor, values: Tensor) -> None:
        """Put `values` [N] at the positions of a contiguous x [B, L], in place."""
        x.view(-1).index_copy_(0, self.index, values)

    def in_columns(self, width: int) -> tuple[Tensor, Tensor]:
        """The positions row by row, in `width` columns, enough for every row: [B, width] int64
        columns of `where`, in which rows with fewer name others that are not chosen, and [N] int64
        indices of the positions into the flattened first result."""
        order = self.where.to(torch.int8).argsort(dim=1, descending=True, stable=True)
        places = torch.arange(width, device=order.device)
        chosen = (places < self.counts[:, None]).flatten()
        return order[:, :width], torch.nonzero_static(chosen, size=len(self)).squeeze(1)
