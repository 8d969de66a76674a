"""The network of one block: rows that are still open, columns that are fed, a cache if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mmrl.samplers.blocks import Block
from mmrl.samplers.logits import guided_logits
from mmrl.samplers.settings import SamplerConfig
from mmrl.types import Canvas

if TYPE_CHECKING:
    from models import Policy


class BlockNetwork:
    """Predicts the positions of one block.

    Attributes:
        columns: half-open range of canvas columns that the next pass computes.
        passes: how many there were.
    """

    def __init__(
        self, policy: Policy, canvas: Canvas, block: Block, settings: SamplerConfig
    ) -> None:
        self.policy, self.settings = policy, settings
        self.first, self.passes = block.first == 0, 0
        rows = (canvas.masked & block.positions).any(1)
        self.rows = None if bool(rows.all()) or not bool(rows.any()) else rows
        self.columns = (0, canvas.tokens.shape[1])
        self.cache = None
        if settings.cache != "none":
            check_columns(canvas.response)
            self.cache = policy.network.new_cache()
            self.later = window(block, settings, canvas.tokens.shape[1])

    def __call__(self, canvas: Canvas, where: Tensor) -> Tensor:
        """Logits [N, C] at the True entries of `where`, guidance applied."""
        if self.rows is not None:
            canvas, where = canvas[self.rows], where[self.rows]
        if self.cache is not None:
            seen = self.columns[1] if self.settings.cache == "prefix" else canvas.tokens.shape[1]
            self.cache.at(*self.columns, seen)
        shared = self.first and self.passes == 0 and self.cache is None
        logits = guided_logits(
            self.policy, canvas, where, self.settings.cfg_scale, shared, self.cache
        )
        self.passes += 1
        if self.cache is not None:
            self.columns = self.later
        return logits


def window(block: Block, settings: SamplerConfig, length: int) -> tuple[int, int]:
    """Columns that the later steps of a block compute, see `SamplerConfig.window`."""
    start, stop = block.columns
    if settings.window is not None:
        return start, min(stop + settings.window, length)
    return start, length if settings.cache == "prefix" else stop


def check_columns(response: Tensor) -> None:
    """Raise a ValueError unless all rows are written at the same columns."""
    if not torch.equal(response, response[:1].expand_as(response)):
        raise ValueError("a cache needs the same response columns in every row; set cache to none")
