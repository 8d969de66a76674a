"""An image while it is denoised, from the step at which each of its tokens was written."""

from collections.abc import Iterator, Sequence

from PIL import Image, ImageDraw

GREY, EDGE = (228, 228, 228), (204, 204, 204)
"""Cells that are still masked."""


def painted(
    image: Image.Image, written_at: Sequence[int], grid: tuple[int, int], step: int
) -> Image.Image:
    """The finished image with every cell (of `grid` height × width, row by row) that was written
    after `step` painted grey; -1 leaves nothing."""
    shown = image.copy()
    draw = ImageDraw.Draw(shown)
    for cell, box in zip(written_at, cell_boxes(image.size, grid), strict=True):
        if cell > step:
            draw.rectangle(box, fill=GREY, outline=EDGE)
    return shown


def cell_boxes(size: tuple[int, int], grid: tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """Left, top, right and bottom pixel of each cell of an image, row by row."""
    (across, down), (height, width) = size, grid
    for y in range(height):
        for x in range(width):
            end = (x + 1) * across // width - 1, (y + 1) * down // height - 1
            yield (x * across // width, y * down // height, *end)
