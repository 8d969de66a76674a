"""Images of prompts as the tensors that a causal model's own processor makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class ImageTensors:
    """Images of the prompts of B rows, each stored once however many rows show it.

    Attributes:
        at: [B, L] int64, the image that a token is of, -1 elsewhere; other tokens lie between two
            images.
        pixels: of each image [patches, D].
        grids: patches of each image over time, height and width.
    """

    source: ClassVar[None] = None
    """There is nothing to compute before a forward pass."""

    at: Tensor
    pixels: tuple[Tensor, ...]
    grids: tuple[tuple[int, ...], ...]

    def __getitem__(self, rows: slice | Tensor) -> ImageTensors:
        """The images of some rows; all are kept."""
        return replace(self, at=self.at[rows])

    def to(self, device: torch.device | str) -> ImageTensors:
        """The images on another device."""
        pixels = tuple(each.to(device) for each in self.pixels)
        return replace(self, at=self.at.to(device), pixels=pixels)

    def pad_left(self, width: int) -> ImageTensors:
        """Extend the rows by `width` columns on the left; fewer than 0 drops some."""
        return replace(self, at=F.pad(self.at, (width, 0), value=-1))

    def compute(self, model: Callable[..., Any]) -> ImageTensors:
        """The same: the network encodes images in its forward pass, each once."""
        return self

    def inputs(self, branches: Sequence[Any] = ()) -> dict[str, dict[str, Tensor]]:
        """What the network reads, see `mmrl.models.network.causal_vlm`. Waits for the device."""
        begins = (self.at >= 0) & (self.at != F.pad(self.at, (1, -1), value=-1))
        shown, order = self.at[begins].unique(return_inverse=True)
        kept = shown.tolist()
        if not kept:
            return {}
        features = {
            "pixel_values": torch.cat([self.pixels[n] for n in kept]),
            "image_grid_thw": torch.tensor([self.grids[n] for n in kept], device=shown.device),
            "image_of": order,
        }
        return {"features": features}

    @staticmethod
    def concatenate(parts: Sequence[ImageTensors]) -> ImageTensors:
        """The images of canvases by rows; parts of one canvas share their images."""
        at, count, own = [], 0, dict[int, tuple[int, ImageTensors]]()
        for part in parts:
            if id(part.pixels) not in own:
                own[id(part.pixels)] = count, part
                count += len(part.pixels)
            at.append(torch.where(part.at < 0, part.at, part.at + own[id(part.pixels)][0]))
        distinct = [part for _, part in own.values()]
        pixels = tuple(each for part in distinct for each in part.pixels)
        return ImageTensors(
            torch.cat(at), pixels, tuple(g for part in distinct for g in part.grids)
        )
