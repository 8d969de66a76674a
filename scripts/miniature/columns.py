"""The images of a parquet file or folder as pixel tensors, opened when they are needed."""

import io
import os
from pathlib import Path

import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from mmrl.config import check
from mmrl.models.image_tokenizers.image_tokenizer import to_bytes
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.models.layouts.text_to_image import open_images
from mmrl.run.image_grid import Cell, page, stack


class ImageRows:
    """The column `image` of what `datasets/shapes/write.py` writes; `size` is a side in pixels."""

    def __init__(self, path: str, size: int) -> None:
        check(os.path.exists(path), "objective.data", path, "an existing parquet file or folder")
        table = pq.read_table(path)
        check("image" in table.column_names, "objective.data", path, "a parquet with 'image'")
        self.images, self.size = table.column("image"), size

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, indices: list[int]) -> Tensor:
        """Return images [len(indices), 3, size, size] float32 in [-1, 1]."""
        found = (io.BytesIO(self.images[n].as_py()["bytes"]) for n in indices)
        return torch.stack([image_to_pixels(Image.open(file), self.size) for file in found])


def draw_reconstruction(pixels: Tensor, decoded: Tensor, directory: Path, step: int) -> float:
    """Write originals above reconstructions as a PNG; return the mean distance of their pixels."""
    pairs = zip(open_images(to_bytes(pixels)), open_images(to_bytes(decoded)), strict=True)
    grid = page([Cell(stack(pair)) for pair in pairs], columns=16)
    grid.save(directory / f"reconstruction_{step:06d}.png")
    return float((decoded.clamp(-1, 1) - pixels).abs().mean())
