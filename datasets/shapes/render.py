"""Draw scenes of the shapes world: flat shapes on a flat background, on an 8 x 8 grid of cells.

A scene is a plain dictionary, so that it can be stored as JSON::

    {"background": "grey",
     "objects": [{"class": "circle", "color": "red", "size": 2, "column": 1, "row": 4}]}

`size`, `column` and `row` count cells; `column` and `row` name the upper left cell of the object,
and may lie between cells.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

GRID = 8
SIZES: dict[str, int] = {"small": 2, "large": 3}

COLORS: dict[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (245, 220, 50),
    "purple": (150, 50, 190),
    "orange": (245, 140, 30),
    "white": (250, 250, 250),
    "black": (5, 5, 5),
}

BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "grey": (125, 125, 125),
    "tan": (190, 170, 145),
    "teal": (95, 135, 140),
    "slate": (70, 78, 110),
}

SHAPES: tuple[str, ...] = ("circle", "square", "triangle", "diamond", "cross", "ring")


@lru_cache(maxsize=256)
def shape_mask(shape: str, pixels: int) -> np.ndarray:
    """Return the pixels a shape covers in its box.

    Pixels are tested at their centres, without anti-aliasing, so that the world has few distinct
    patches and a small codebook can hold them.

    Args:
        shape: One of `SHAPES`.
        pixels: Side of the box in pixels.

    Returns:
        Boolean array [pixels, pixels], rows from top to bottom.

    Raises:
        ValueError: If the shape is unknown.
    """
    centres = (np.arange(pixels) + 0.5) * 2 / pixels - 1
    x, y = np.abs(centres)[None, :], centres[:, None]
    radius = np.hypot(x, y)
    masks = {
        "circle": radius <= 1,
        "square": np.ones((pixels, pixels), dtype=bool),
        "triangle": x <= (y + 1) / 2 + 0.1,
        "diamond": x + np.abs(y) <= 1 + 1e-6,
        "cross": (x <= 1 / 3) | (np.abs(y) <= 1 / 3),
        "ring": (radius <= 1) & (radius >= 0.5),
    }
    if shape not in masks:
        raise ValueError(f"Unknown shape {shape!r}; the world has {', '.join(SHAPES)}.")
    return masks[shape]


def render(scene: dict[str, Any], size: int = 32) -> Image.Image:
    """Draw a scene.

    Args:
        scene: Background and objects, as described at the top of this file.
        size: Side of the image in pixels, a multiple of `GRID`.

    Returns:
        An RGB image of `size` x `size` pixels.

    Raises:
        ValueError: If `size` is not a multiple of `GRID` or an object does not fit in the image.
    """
    if size <= 0 or size % GRID:
        raise ValueError(f"size={size} is not allowed: give a positive multiple of {GRID}.")
    cell = size // GRID
    pixels = np.empty((size, size, 3), dtype=np.uint8)
    pixels[:] = BACKGROUNDS[scene["background"]]
    for item in scene["objects"]:
        side = item["size"] * cell
        top, left = round(item["row"] * cell), round(item["column"] * cell)
        if min(top, left) < 0 or max(top, left) + side > size:
            raise ValueError(f"The object {item} reaches outside the {GRID} x {GRID} cells.")
        window = pixels[top : top + side, left : left + side]
        window[shape_mask(item["class"], side)] = COLORS[item["color"]]
    return Image.fromarray(pixels)
