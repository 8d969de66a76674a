"""Canvases of a block-causal network: prompts of several lengths, some of them equal."""

import torch

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models.network.pattern import count_blocks

MASK, SIZE, END = 590, 4, 580


def block_canvas(
    alignment: str = "left", lengths: tuple[int, ...] = (6, 9, 9, 3), n: int = 12
) -> MaskedCanvas:
    """Rows with prompts of some lengths, of equal length the same one, and n open positions."""
    width = max(lengths)
    tokens = torch.full((len(lengths), width + n), MASK)
    for row, length in enumerate(lengths):
        draw = torch.Generator().manual_seed(length)
        tokens[row, width - length : width] = torch.randint(0, 500, (length,), generator=draw)
        tokens[row, : width - length] = END
    columns = torch.arange(width + n).expand_as(tokens)
    attend = columns >= width - torch.tensor(lengths)[:, None]
    blocks = count_blocks(attend, SIZE, 0 if alignment == "left" else width)
    keep = None if bool(attend.all()) else attend
    other = torch.full_like(tokens, MASK)
    return MaskedCanvas(
        tokens, columns >= width, keep, (0, 580), MASK, other, keep, blocks=blocks, block_size=SIZE
    )
