"""Image embeddings in prompts: their positions, and what they are computed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class PromptImage(NamedTuple):
    """An image of prompts: its size in pixels, its number of tiles and of embeddings (`rows`)."""

    width: int
    height: int
    tiles: int
    rows: int


@dataclass
class Features:
    """Image embeddings that take the place of tokens in prompts. Every image is stored once,
    however many rows of the canvas show it, so the rollouts of a group share the embeddings of
    their prompt.

    `at` [B, L] int64 is the index into the N embeddings, in the order of the images, -1 where a
    position holds a token. `source` is the network's input for the embeddings, all images
    concatenated; None when these are final. `embeddings` [N, D] are None until a network has
    computed them."""

    at: Tensor
    images: tuple[PromptImage, ...]
    source: Tensor | None
    embeddings: Tensor | None = None

    def __getitem__(self, rows: slice | Tensor) -> Features:
        """The features of some rows of the canvas; all images are kept."""
        return replace(self, at=self.at[rows])

    def to(self, device: torch.device | str) -> Features:
        """The features on another device."""
        own = (self.embeddings, self.source)
        embeddings, source = (each if each is None else each.to(device) for each in own)
        return replace(self, at=self.at.to(device), embeddings=embeddings, source=source)

    def compute(self, model: Callable[..., Any]) -> Features:
        """Compute the embeddings with `model`, and keep what it needs to compute them again.

        With gradient where it is enabled and a weight is trained; final embeddings stay.
        """
        if self.source is None:
            return self
        embeddings, source = model(images=self.source, shown=self.images)
        return replace(self, embeddings=embeddings, source=source)

    def inputs(self, branches: Sequence[Features | None]) -> dict[str, Any]:
        """What the network reads of the branches of guidance, which differ in where the embeddings
        are and not in them; a branch without features shows none. Pixels, for the network to encode
        them, where there are no embeddings yet."""
        nowhere = torch.full_like(self.at, -1)
        places = [nowhere if features is None else features.at for features in branches]
        at: dict[str, Any] = {"feature_at": torch.cat(places)}
        if self.embeddings is None:
            return {"images": self.source, "shown": self.images, **at}
        return {"features": self.embeddings, **at}

    def drop_unused(self) -> Features:
        """Drop the images that no row of the canvas shows."""
        numbers = torch.arange(len(self.images), device=self.at.device)
        of_row, of_tile = (
            numbers.repeat_interleave(torch.tensor(sizes, device=numbers.device))
            for sizes in zip(*((image.rows, image.tiles) for image in self.images), strict=True)
        )
        used = torch.isin(numbers, of_row[self.at[self.at >= 0]])
        if bool(used.all()):
            return self
        place = (used[of_row].cumsum(0) - 1)[self.at.clamp(min=0)]
        images = tuple(
            image for image, kept in zip(self.images, used.tolist(), strict=True) if kept
        )
        source = None if self.source is None else self.source[used[of_tile].to(self.source.device)]
        return Features(place.where(self.at >= 0, -1), images, source)

    def pad_left(self, width: int) -> Features:
        """Extend the rows by `width` columns on the left."""
        return replace(self, at=F.pad(self.at, (width, 0), value=-1))

    @staticmethod
    def concatenate(parts: Sequence[Features]) -> Features:
        """Concatenate the features of canvases by rows; parts of one canvas share their images."""
        at, count, own = [], 0, dict[int, tuple[int, Features]]()
        for part in parts:
            key = id(part.source if part.embeddings is None else part.embeddings)
            if key not in own:
                own[key] = count, part
                count += sum(image.rows for image in part.images)
            at.append(torch.where(part.at < 0, part.at, part.at + own[key][0]))
        parts = [part for _, part in own.values()]
        sources = [part.source for part in parts if part.source is not None]
        known = [part.embeddings for part in parts if part.embeddings is not None]
        return Features(
            torch.cat(at),
            tuple(image for part in parts for image in part.images),
            torch.cat(sources) if sources else None,
            torch.cat(known) if known else None,
        )
