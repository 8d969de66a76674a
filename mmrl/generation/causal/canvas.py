"""Rows of tokens that are written from left to right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mmrl.generation.tokens.canvas import TokenCanvas

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class CausalCanvas(TokenCanvas):
    """A batch of rows whose responses are their last columns; see `TokenCanvas`. What a response
    position holds before it is written is not read."""

    kind: ClassVar[str] = "causal"

    @property
    def first_column(self) -> int:
        """The first column of the responses, the same in all rows. Waits for the device once."""
        return int(self.response[0].int().argmax())


@dataclass
class Reading:
    """A `mmrl.types.Query`: read finished rows once, each token predicted from those before it."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Reading:
        """The same reading: it has no tensors."""
        return self

    def show(self, canvas: CausalCanvas, k: int, asked: Tensor) -> tuple[CausalCanvas, Tensor]:
        """The canvas as it is."""
        return canvas, asked
