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
from typing import TYPE_CHECKING, Any

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
        """See `hide_tokens`."""
        return hide_tokens(canvas, self.mask[k], asked)


def hide_tokens(canvas: MaskedCanvas, hidden: Tensor, asked: Tensor) -> tuple[MaskedCanvas, Tensor]:
    """A canvas with the tokens at `hidden` masked, and where the network predicts them.

    Args:
        canvas: B finished rows.
        hidden: [B, L] bool; hidden tokens of the prompt are hidden from all blocks.
        asked: [B, L] bool, a part of `hidden` and of the response.

    Returns:
        The canvas that the network reads, and [B, L'] bool, `asked` in it in the same order.
    """
    import torch

    masked = canvas.hide(hidden)
    if canvas.blocks is None:
        return masked, asked
    first = canvas.first_response_column
    clean = canvas.hide(hidden & ~canvas.response)
    kinds = torch.zeros_like(canvas.tokens), torch.ones_like(canvas.tokens)
    columns = torch.arange(canvas.tokens.shape[1], device=canvas.tokens.device)
    parts: dict[str, tuple[Tensor | None, ...]] = {
        "tokens": (clean.tokens, masked.tokens),
        "response": (torch.zeros_like(canvas.response), canvas.response),
        "copies": kinds,
        "places": (columns.expand_as(canvas.tokens),) * 2,
    }
    for name in ("attend", "blocks", "uncond_attend"):
        parts[name] = (getattr(canvas, name),) * 2
    if canvas.uncond_tokens is not None:
        other = clean.tokens.where(canvas.response, canvas.uncond_tokens)
        parts["uncond_tokens"] = other, canvas.uncond_tokens
    joined: dict[str, Any] = {
        name: _append(clean_part, copy_part, first)
        for name, (clean_part, copy_part) in parts.items()
    }
    packed = replace(masked, **joined, valid=None)
    return packed, torch.cat((torch.zeros_like(asked), asked[:, first:]), 1)


def _append(clean: Tensor | None, copy: Tensor | None, first: int) -> Tensor | None:
    """[B, L + (L - first)]: a tensor, and the columns of the copy from `first` on."""
    import torch

    if clean is None or copy is None:
        return None
    return torch.cat((clean, copy[:, first:]), 1)
