"""Any-resolution tiling (LLaVA-NeXT, LLaDA-V): an image -> tiles, features of tiles -> prompt rows.

    tiles   the whole image squashed to one tile, then the tiles of a grid, row by row, on which it
            is letterboxed on black
    rows    the first tile's patches, then those of the grid as one map: black borders cut, shrunk
            to about `max_tiles` tiles, every line closed by the newline vector

Borders are cut symmetrically with whole patches, so one line or column more than needed may remain.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from transformers.image_processing_utils import select_best_resolution

SHRINK_FROM = 1.1
"""A map is shrunk when its sides are more than this many times too long."""


@dataclass(frozen=True)
class Tiling:
    """How the images of one checkpoint are cut: tiles of `side` pixels and `patches` patches along
    a side, `grids` of columns and rows to choose from; a map of more than `max_tiles` is shrunk to
    about as many."""

    side: int
    patches: int
    grids: tuple[tuple[int, int], ...]
    max_tiles: int

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows for an image: most of its pixels kept, then least canvas left empty."""
        sizes = [(rows * self.side, columns * self.side) for columns, rows in self.grids]
        high, wide = select_best_resolution((height, width), sizes)
        return wide // self.side, high // self.side

    def count(self, width: int, height: int) -> int:
        """Number of tiles of an image."""
        columns, rows = self.grid(width, height)
        return 1 + columns * rows

    def cut(self, image: Image.Image) -> Tensor:
        """An image -> its tiles [T, 3, side, side] uint8."""
        image, side = image.convert("RGB"), self.side
        columns, rows = self.grid(*image.size)
        pixels = np.array(letterbox(image, (columns * side, rows * side)))
        parts = pixels.reshape(rows, side, columns, side, 3).swapaxes(1, 2)
        whole = np.array(image.resize((side, side), Image.Resampling.BICUBIC))
        tiles = np.concatenate((whole[None], parts.reshape(-1, side, side, 3)))
        return torch.from_numpy(tiles).permute(0, 3, 1, 2).contiguous()

    def lines(self, width: int, height: int) -> tuple[slice, slice]:
        """The rows and columns of the patch map of the grid that show the image."""
        columns, rows = self.grid(width, height)
        across, down = columns * self.patches, rows * self.patches
        if width / height > across / down:
            border = (down - int(height * (across / width))) // 2
            return slice(border, down - border), slice(0, across)
        border = (across - int(width * (down / height))) // 2
        return slice(0, down), slice(border, across - border)

    def shape(self, width: int, height: int) -> tuple[int, int]:
        """Height and width of the map after cutting and shrinking, without newlines."""
        high, wide = (part.stop - part.start for part in self.lines(width, height))
        times = math.sqrt(high * wide / (self.max_tiles * self.patches**2))
        return (int(high // times), int(wide // times)) if times > SHRINK_FROM else (high, wide)

    def rows(self, width: int, height: int) -> int:
        """How many embeddings show an image of this size."""
        high, wide = self.shape(width, height)
        return self.patches**2 + high * (wide + 1)

    @property
    def most_rows(self) -> int:
        """Embeddings of an image of the size that takes the most."""
        return max(self.rows(across * self.side, down * self.side) for across, down in self.grids)

    def arrange(self, features: Tensor, newline: Tensor, width: int, height: int) -> Tensor:
        """Embeddings [rows, D] of an image of so many pixels from those of its tiles, `features`
        [T, patches^2, D], and the newline vector [D]."""
        (columns, rows), n = self.grid(width, height), self.patches
        tiles = features[1:].view(rows, columns, n, n, -1)
        whole = tiles.permute(4, 0, 2, 1, 3).reshape(-1, rows * n, columns * n)
        shown = whole[(slice(None), *self.lines(width, height))]
        shape = self.shape(width, height)
        if shape != shown.shape[1:]:
            shown = F.interpolate(shown[None], shape, mode="bilinear")[0]
        ends = newline[:, None, None].expand(-1, shape[0], 1).to(shown.dtype)
        return torch.cat((features[0], torch.cat((shown, ends), 2).flatten(1).T))


def letterbox(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """An RGB image as large as fits, centred on black."""
    across, down = size[0] / image.width, size[1] / image.height
    if across < down:
        fitting = size[0], min(math.ceil(image.height * across), size[1])
    else:
        fitting = min(math.ceil(image.width * down), size[0]), size[1]
    canvas = Image.new("RGB", size)
    place = (size[0] - fitting[0]) // 2, (size[1] - fitting[1]) // 2
    canvas.paste(image.resize(fitting, Image.Resampling.BICUBIC), place)
    return canvas


def read_grids(value: Any, side: int) -> tuple[tuple[int, int], ...]:
    """Columns and rows of the grids to choose from, of tiles with so many pixels along a side.

    `image_grid_pinpoints` of a config.json are sizes in pixels, a list of pairs (width, height) as
    published, or the range of grids that the training script turns into it, `(1x1),...,(6x6)`.
    Raises ValueError: it is neither, or a size is no multiple of the side.
    """
    found = re.fullmatch(r"\((\d+)x(\d+)\),\.\.\.,\((\d+)x(\d+)\)", str(value))
    if found is not None:
        first, low, last, high = map(int, found.groups())
        value = [(i * side, j * side) for i in range(first, last + 1) for j in range(low, high + 1)]
    pairs: list[Any] = [tuple(pair) if isinstance(pair, Sequence) else () for pair in value or ()]
    whole = all(isinstance(n, int) and n > 0 and n % side == 0 for pair in pairs for n in pair)
    if not pairs or not whole or any(len(pair) != 2 for pair in pairs):
        raise ValueError(
            f"config.json: image_grid_pinpoints is {value!r}; give pairs [width, height] in pixels,"
            f" multiples of the {side} of a tile"
        )
    return tuple((width // side, height // side) for width, height in pairs)
