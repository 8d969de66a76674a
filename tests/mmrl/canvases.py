"""Canvases for tests: of the MMaDA fixture, and small ones for a small network."""

from typing import Any

import torch
from torch import Generator, Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.tokens.scoring.logits import guided_output
from mmrl.types.guidance import Guidance

MASK_ID, VOCAB = 39, (12, 36)


def mmada_canvas(cases: dict[str, Tensor], masked_padding: bool) -> MaskedCanvas:
    """The two prompts of the MMaDA fixture, laid out by the public code."""
    ids, keep = (cases[f"layouts/t2i_gen/{i}"] for i in range(2))
    other, other_keep = (cases[f"layouts/t2i_gen_uncond/{i}"] for i in range(2))
    response = ids == 126336
    masks = (keep.bool(), other_keep.bool()) if masked_padding else (None, None)
    branches = {"uncond_tokens": other.clone(), "uncond_attend": masks[1]}
    columns, grid = (126349, 134541), (4, 4)
    return MaskedCanvas(ids.clone(), response, masks[0], columns, 126336, **branches, grid=grid)


def small_canvas(
    rows: int = 3,
    positions: int = 6,
    seed: int = 0,
    padding: bool = False,
    ragged: bool = False,
    given: bool = False,
    image: bool = False,
) -> MaskedCanvas:
    """Random prompts of four tokens, then masked response positions, then a closing token.

    Args:
        rows: B.
        positions: n.
        seed: of the prompts.
        padding: whether later rows have padding on their left.
        ragged: whether later rows have fewer response positions.
        given: whether the first response position of each row is written already.
        image: whether there is a branch without the first two tokens, as without a source image.
    """
    draw = Generator().manual_seed(seed)
    width = 4 + positions + 1
    tokens = torch.randint(0, 10, (rows, width), generator=draw)
    other = torch.full((rows, width), 11)
    response = torch.zeros(rows, width, dtype=torch.bool)
    response[:, 4:-1] = True
    if ragged:
        for row in range(1, rows):
            response[row, 4 : 4 + min(row, positions - 1)] = False
    tokens[response] = MASK_ID
    if given:
        tokens[torch.arange(rows), response.int().argmax(1)] = VOCAB[0] + 3
    attend = None
    if padding:
        attend = torch.ones(rows, width, dtype=torch.bool)
        for row in range(rows):
            attend[row, : row % 3] = False
    canvas = MaskedCanvas(tokens, response, attend, VOCAB, MASK_ID, other, attend)
    if image:
        canvas.image_uncond_tokens = tokens.clone()
        canvas.image_uncond_attend = torch.ones_like(response) if attend is None else attend.clone()
        canvas.image_uncond_attend[:, :2] = False
    return canvas


def generators(rows: int, seed: int = 0) -> list[Generator]:
    """One generator per row."""
    return [Generator().manual_seed(1000 * seed + row) for row in range(rows)]


def guided_logits(
    policy: Any,
    canvas: MaskedCanvas,
    where: Tensor,
    cfg_scale: float,
    image: float = 0.0,
    **named: Any,
) -> Tensor:
    """The logits of `guided_output`."""
    return guided_output(policy, canvas, where, Guidance(cfg_scale, image), **named)
