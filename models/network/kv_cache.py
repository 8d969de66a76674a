"""Keys and values that are kept between forward passes, at fixed absolute positions.

One class serves Fast-dLLM's prefix and dual caches (arXiv 2505.22618) and windows of both. Keys are
stored rotated: positions never move, so this equals rotating them again in every pass.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Span(NamedTuple):
    """`start`, `stop`: columns that a pass computes; `seen`: it attends to columns below this."""

    start: int
    stop: int
    seen: int


class KVCache:
    """Keys and values [R, H, L, d] of every layer.

    The first pass must span the whole row. Each later pass computes the columns of `span`, writes
    their keys and values over the stored ones, and attends to everything below `span.seen`.

    Args:
        reach: columns before the requested ones that a pass computes as well.
    """

    def __init__(self, reach: int = 0) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []
        self.span = Span(0, 0, 0)
        self.reach = reach

    def at(self, start: int, stop: int, seen: int) -> KVCache:
        """This cache, for a pass over the columns from `start` to `stop`."""
        self.span = Span(max(0, start - self.reach), stop, seen)
        return self

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store what a pass computed, [R, H, stop - start, d]; return what it attends to."""
        start, stop, seen = self.span
        if layer == len(self.layers):
            self.layers.append((k, v))
            return k, v
        keys, values = self.layers[layer]
        keys[:, :, start:stop], values[:, :, start:stop] = k, v
        return keys[:, :, :seen], values[:, :, :seen]
