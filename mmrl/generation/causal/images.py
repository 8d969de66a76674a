"""Images of prompts as the tensors that a causal model's own processor makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass
class ImageTensors:
    """Images of the prompts of B rows, each stored once however many rows show it.

    Attributes:
        shown: [B, n] int64, the images of a row in their order, -1 behind the last.
        pixels: of each image [patches, D].
        grids: patches of each image over time, height and width.
    """

    source: ClassVar[None] = None
    """There is nothing to compute before a forward pass."""

    shown: Tensor
    pixels: tuple[Tensor, ...]
    grids: tuple[tuple[int, int, int], ...]

    def __getitem__(self, rows: slice | Tensor) -> ImageTensors:
        """The images of some rows; all are kept."""
        return replace(self, shown=self.shown[rows])

    def to(self, device: torch.device | str) -> ImageTensors:
        """The images on another device."""
        pixels = tuple(each.to(device) for each in self.pixels)
        return replace(self, shown=self.shown.to(device), pixels=pixels)

    def pad_left(self, width: int) -> ImageTensors:
        """The same: images have no columns."""
        return self

    def compute(self, model: Callable[..., Any]) -> ImageTensors:
        """The same: the network encodes images in its forward pass, each once."""
        return self

    def inputs(self, branches: Sequence[Any] = ()) -> dict[str, dict[str, Tensor]]:
        """What the network reads, see `mmrl.models.network.causal_vlm`. The host waits for the
        device once."""
        import torch

        places = [n for row in self.shown.tolist() for n in row if n >= 0]
        kept = list(dict.fromkeys(places))
        if not kept:
            return {}
        order, device = {n: k for k, n in enumerate(kept)}, self.shown.device
        features = {
            "pixel_values": torch.cat([self.pixels[n] for n in kept]),
            "image_grid_thw": torch.tensor([self.grids[n] for n in kept], device=device),
            "image_of": torch.tensor([order[n] for n in places], device=device),
        }
        return {"features": features}

    @staticmethod
    def concatenate(parts: Sequence[ImageTensors]) -> ImageTensors:
        """The images of canvases by rows; parts of one canvas share their images."""
        import torch
        import torch.nn.functional as F

        width, count = max(part.shown.shape[1] for part in parts), 0
        firsts, own = dict[int, int](), list[ImageTensors]()
        for part in parts:
            if id(part.pixels) not in firsts:
                firsts[id(part.pixels)] = count
                own.append(part)
                count += len(part.pixels)
        shown = []
        for part in parts:
            moved = torch.where(part.shown < 0, -1, part.shown + firsts[id(part.pixels)])
            shown.append(F.pad(moved, (0, width - moved.shape[1]), value=-1))
        pixels = tuple(each for part in own for each in part.pixels)
        return ImageTensors(torch.cat(shown), pixels, tuple(g for part in own for g in part.grids))
