"""Which tokens may attend to which: attention that is causal between blocks and full inside them.

Block diffusion (BD3-LM, arXiv 2503.09573; SDAR, arXiv 2510.06303). A query of block b attends to
the clean tokens of the blocks before b, and to the tokens of block b of its kind: clean tokens, or
one of the copies in which tokens are hidden. So one row holds a text and copies of its blocks, and
each copy is predicted from the clean blocks before it:

    clean | copy 1 | copy 2 …        allowed(q, k) = (k clean and block(k) < block(q))
                                                     or (block(k) = block(q) and kind(q) = kind(k))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass
class BlockPattern:
    """The pattern of one forward pass: `blocks` [B, L] int64 of the keys; `copies` [B, L] int64, 0
    for a clean token, else the number of its copy, None where all are clean; `attend` [B, L] bool,
    False on padding keys, None without; `queries` [B, n] int64, positions of the queries, None
    where all are."""

    blocks: Tensor
    copies: Tensor | None = None
    attend: Tensor | None = None
    queries: Tensor | None = None

    def at(self, index: Tensor) -> BlockPattern:
        """The pattern of some queries: `index` [B, n] into those there are."""
        queries = index if self.queries is None else self.queries.gather(1, index)
        return replace(self, queries=queries)

    def dense(self) -> Tensor:
        """[B, 1, n, L] bool, True where a query attends to a key."""

        def of_queries(keys: Tensor) -> Tensor:
            own = keys if self.queries is None else keys.gather(1, self.queries)
            return own[:, :, None]

        kinds: Any = (None, None)
        if self.copies is not None:
            kinds = of_queries(self.copies), self.copies[:, None, :]
        allowed = may_attend(of_queries(self.blocks), self.blocks[:, None, :], *kinds)
        allowed = allowed if self.attend is None else allowed & self.attend[:, None, :]
        return allowed.unsqueeze(1)


def may_attend(
    own: Tensor, other: Tensor, kind: Tensor | None = None, other_kind: Tensor | None = None
) -> Tensor:
    """Whether queries of block `own` attend to keys of block `other`, broadcast against it. Kinds
    are 0 or False for a clean token, else its copy; None where all are clean."""
    if kind is None or other_kind is None:
        return other <= own
    return ((other < own) & (other_kind == 0)) | ((other == own) & (kind == other_kind))


def count_blocks(attend: Tensor, size: int, first: int = 0) -> Tensor:
    """[B, L] int64: the block of `size` of each position, counted from that of the first token.
    `attend` [B, L] is False on padding left of the tokens, which belongs to block 0; a block begins
    at column `first` in every row, or where that is 0 at the first token of each."""
    columns = torch.arange(attend.shape[1], device=attend.device)
    place = attend.long().cumsum(1) - 1 if first == 0 else columns - first
    blocks = (place // size).expand(attend.shape)
    lowest = blocks.masked_fill(~attend, attend.shape[1]).amin(1, keepdim=True)
    return (blocks - lowest).clamp(min=0)
