"""The exact cache of a network whose attention is causal between blocks.

Nothing that is written later changes the keys and values of a finished block, so each block is
computed once more when it is complete, together with the first step of the next one, and never
again. The blocks of the prompt are computed once for all rows with the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.tokens.scoring.logits import network_inputs, take_distinct
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from mmrl.models import Policy


class ExactCache:
    """Keys and values of the finished blocks of some rows of a canvas.

    Attributes:
        rows: [r] int64, the rows of the canvas that are still computed.
        start: first column whose keys and values are not final.
        keys: the network's cache; with guidance the rows of each unconditional branch follow.
    """

    def __init__(self, policy: Policy, canvas: MaskedCanvas, guidance: Guidance) -> None:
        self.branches = guidance.branches
        self.rows = torch.arange(len(canvas), device=canvas.tokens.device)
        self.start = canvas.first_response_column
        length = canvas.tokens.shape[1]
        self.keys: Any = policy.network.new_cache(length)
        if self.start > 0:
            self._compute_prompts(policy, guidance.build_branches(canvas))

    def keep(self, canvas: MaskedCanvas) -> Tensor:
        """[r] int64: the rows that are still computed; those that are complete are dropped."""
        kept = canvas.masked[self.rows].any(1).nonzero().flatten()
        if 0 < len(kept) < len(self.rows):
            self.keys.take_rows(
                torch.cat([kept + n * len(self.rows) for n in range(self.branches)])
            )
            self.rows = self.rows[kept]
        return self.rows

    def columns_of(self, canvas: MaskedCanvas, positions: Tensor) -> tuple[int, int]:
        """Half-open range of columns that in some row belong to the block at `positions` [B, L]."""
        assert canvas.blocks is not None
        number = canvas.blocks.where(positions, -1).amax(-1, keepdim=True)
        used = (canvas.blocks == number).any(0).nonzero().flatten().tolist()
        return used[0], used[-1] + 1

    def _compute_prompts(self, policy: Policy, branches: Sequence[MaskedCanvas]) -> None:
        """One pass over the complete blocks of the prompts, each distinct one once."""
        given = {name: x[:, : self.start] for name, x in network_inputs(branches).items()}
        distinct, original = take_distinct(given)
        cache = self.keys.at(0, self.start, self.start)
        nowhere = torch.zeros_like(distinct["input_ids"], dtype=torch.bool)
        policy.model(**distinct, positions=nowhere, columns=branches[0].columns, cache=cache)
        self.keys.take_rows(original)
