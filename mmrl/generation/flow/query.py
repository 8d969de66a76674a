"""What passes over latents ask, for the strategies of latents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mmrl.types import Scores

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

    from mmrl.generation.flow.canvas import LatentCanvas


@dataclass
class LatentQuery:
    """A query of `mmrl.types.Query` whose passes show latents at noise levels; its fields that are
    tensors are [K, B, …]."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The query of other draws or rows."""
        import torch

        own = ((name, each) for name, each in vars(self).items() if isinstance(each, torch.Tensor))
        return replace(self, **{name: change(each) for name, each in own})

    @abstractmethod
    def show(self, canvas: LatentCanvas, k: int) -> tuple[Tensor, Tensor]:
        """The latents [B, D] that pass `k` shows, and their noise level [B]."""

    @abstractmethod
    def read(
        self, canvas: LatentCanvas, k: int, state: Tensor, sigma: Tensor, velocity: Tensor
    ) -> tuple[Tensor, ...]:
        """What pass `k` finds by the velocity [B, D] at its state: a log-prob [B] first, then
        tensors [B] or [B, D]."""

    @abstractmethod
    def collect(self, found: Sequence[Tensor], scored: Tensor, size: Tensor) -> Scores:
        """The scores of K passes from what `read` gave of each, stacked [K, B, …]; `scored`
        [K, B, N] as of the passes, `size` [B] the numbers of each row's latent."""

    def follow(self, canvas: LatentCanvas, k: int, found: Sequence[Tensor]) -> LatentCanvas:
        """The canvas that the next pass is shown, after what pass `k` found."""
        return canvas
