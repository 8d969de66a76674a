"""Passes that hide tokens again, and what the network of a policy reads then.

Where all tokens attend to each other, that is the canvas with masks. Where attention is causal
between blocks, a hidden token is predicted from the clean blocks before its own and from what is
visible in its own: one row holds the clean canvas and a copy of the blocks of the response with
the tokens hidden, so all blocks are scored in one forward pass.

    prompt | clean response | copy of the response, some of it hidden

The copy begins with the block of the first response token: the end of a prompt that shares this
block is part of it. BD3-LM (arXiv 2503.09573) trains so; TraceRL (arXiv 2509.06949) does RL so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mmrl.generation.masked.canvas import MaskedCanvas

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Hidden:
    """A query of `mmrl.types.Query`: predict tokens that are hidden.

    `mask` [K, B, L] bool: positions hidden in a pass, of the response, and of the prompt where it
    is noised. What a pass scores is a part of them.
    """

    mask: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> Hidden:
        """The query of other draws, rows or columns."""
        return Hidden(change(self.mask))

    def show(self, canvas: MaskedCanvas, k: int, asked: Tensor) -> tuple[MaskedCanvas, Tensor]:
        """The canvas that the network reads, with the tokens of B finished rows masked as pass `k`
        hides them, those of the prompt from all blocks; and [B, L'] bool, `asked`, a part of them
        and of the response, in it in the same order."""
        import torch

        hidden = self.mask[k]
        masked = canvas.hide(hidden)
        if canvas.blocks is None:
            return masked, asked
        length, first = canvas.tokens.shape[1], canvas.first_response_column
        columns = torch.arange(length, device=canvas.tokens.device)
        columns = torch.cat((columns, columns[first:]))
        copied = torch.arange(len(columns), device=columns.device) >= length
        clean, packed = canvas.hide(hidden & ~canvas.response), masked.take_columns(columns)
        tokens = packed.tokens.where(copied, clean.tokens[:, columns])
        other = packed.uncond_tokens
        if other is not None:
            other = other.where(copied | ~packed.response, tokens)
        packed = replace(
            packed,
            tokens=tokens,
            response=packed.response & copied,
            uncond_tokens=other,
            valid=None,
            copies=copied.long().expand_as(tokens),
            places=columns.expand_as(tokens),
        )
        return packed, asked[:, columns] & copied
