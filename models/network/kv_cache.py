"""Keys and values that are kept between forward passes, at fixed absolute positions.

`KVCache` serves Fast-dLLM's prefix and dual caches (arXiv 2505.22618) and the exact cache of
networks whose attention is causal between blocks. Keys are stored rotated, so a column may move.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


class KVCache:
    """Keys and values [R, H, L, d] of every layer, for rows of `length` columns, or those of the
    first pass. That spans the first columns of the row; each later one computes the columns of
    `span` (start, stop, seen), and `reach` columns before them, writes over what is stored, and
    attends to all below `seen`."""

    def __init__(self, reach: int = 0, length: int | None = None) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []
        self.span = 0, 0, 0
        self.reach, self.length = reach, length

    def at(self, start: int, stop: int, seen: int) -> KVCache:
        """This cache, for a pass over the columns from `start` to `stop`."""
        self.span = max(0, start - self.reach), stop, seen
        return self

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store what a pass computed, [R, H, stop - start, d]; return what it attends to."""
        start, stop, seen = self.span
        if layer == len(self.layers):
            room = (0, 0, 0, (self.length or stop) - stop)
            self.layers.append((F.pad(k, room), F.pad(v, room)) if room[-1] else (k, v))
            return k, v
        keys, values = self.layers[layer]
        keys[:, :, start:stop], values[:, :, start:stop] = k, v
        return keys[:, :, :seen], values[:, :, :seen]

    def take_rows(self, index: Tensor) -> None:
        """Keep the rows `index` [r] int64, in this order; a row may be named several times."""
        self.layers = [(keys[index], values[index]) for keys, values in self.layers]

    def put_rows(self, index: Tensor, other: KVCache, stop: int) -> None:
        """Replace what the rows `index` [r] int64 have in the columns before `stop` by all columns
        of another cache of r rows. The first call, which names all rows, makes room for them."""
        for n, kept in enumerate(other.layers):
            if n == len(self.layers):
                assert self.length is not None
                room = (0, 0, 0, self.length - kept[0].shape[2])
                self.layers.append((F.pad(kept[0], room), F.pad(kept[1], room)))
            for stored, new in zip(self.layers[n], kept, strict=True):
                stored[index, :, stop - new.shape[2] : stop] = new

    def drop_columns(self, number: int, stop: int) -> None:
        """Move the columns from `number` to `stop` to the left end."""
        for stored in (each for layer in self.layers for each in layer):
            stored[:, :, : stop - number] = stored[:, :, number:stop].clone()


class TokenCache:
    """Keys and values [R, H, L, d] of every layer, for passes over any positions of each row, which
    attend to all of it. The next pass computes the positions `index` [R, n] int64, given with
    `position_ids`, and writes over what is stored; None for all. A position may be named several
    times."""

    def __init__(self, length: int) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []
        self.length = length
        self.index: Tensor | None = None

    @property
    def span(self) -> tuple[int, int, int]:
        return 0, self.length, self.length

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store what a pass computed, [R, H, L or n, d]; return what it attends to."""
        if self.index is None:
            self.layers[layer : layer + 1] = [(k, v)]
            return k, v
        at = self.index[:, None, :, None].expand_as(k)
        for stored, new in zip(self.layers[layer], (k, v), strict=True):
            stored.scatter_(2, at, new)
        return self.layers[layer]
