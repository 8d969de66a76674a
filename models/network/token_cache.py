"""Keys and values of all positions of rows, of which later passes compute any again.

As `mmrl.models.network.kv_cache`, but for positions that differ between rows and need not be
adjacent.
"""

from torch import Tensor


class TokenCache:
    """Keys and values [R, H, L, d] of every layer.

    Every pass attends to all L positions. One with `index` None computes all of them; one with an
    `index` computes those positions of each row, given with `position_ids`, and writes their keys
    and values over the stored ones.

    Attributes:
        index: [R, n] int64, which positions the next pass computes; None for all. A position may
            be named several times.
    """

    def __init__(self, length: int) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []
        self.length = length
        self.index: Tensor | None = None

    @property
    def span(self) -> tuple[int, int, int]:
        """First and last column of the positions, and the number of keys, for the network."""
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
