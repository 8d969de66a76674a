"""Sizes of images as grids of codes.

Lumina-DiMOO fits images of prompts to rectangles of about the same area. Its public code halves
large ones before it resizes them, and crops at a random place; here an image is resized once and
its middle kept.
"""

from functools import cache
from math import isqrt

from mmrl.models.layouts.layout_config import LayoutConfig

LONGEST = 4
"""Largest ratio of the sides of Lumina-DiMOO's images."""


def count_along(key: str, side: int, downsample: int) -> int:
    """Codes along a side of so many pixels. Raises ValueError: it is no multiple of a code's; the
    message names the key."""
    if side % downsample:
        raise ValueError(f"{key} is {side}, no multiple of {downsample}")
    return side // downsample


def square_side(options: LayoutConfig, downsample: int, codes: int) -> int:
    """Codes along a side of an image: of `image_size`, or of an image of so many codes where no
    size is chosen. Raises ValueError: see `count_along`; also codes that are no square."""
    if options.image_size is not None:
        return count_along("image_size", options.image_size, downsample)
    if (side := isqrt(codes)) ** 2 != codes:
        raise ValueError(f"an image has {codes} codes, no square; set image_size")
    return side


def written_grid(options: LayoutConfig, downsample: int, side: int) -> tuple[int, int]:
    """Height and width in codes of the images that are written, `side` where no other is chosen;
    errors of `count_along`."""
    chosen = {"image_height": options.image_height, "image_width": options.image_width}
    height, width = (
        side if pixels is None else count_along(key, pixels, downsample)
        for key, pixels in chosen.items()
    )
    return height, width


@cache
def list_sizes(cells: int) -> list[tuple[int, int]]:
    """Widths and heights in cells of rectangles of at most `cells`, of each width the heights that
    leave no room for a wider one."""
    return [
        (width, height)
        for width in range(cells, 0, -1)
        for height in range(max(1, cells // (width + 1)), cells // width + 1)
        if max(width, height) <= LONGEST * min(width, height)
    ]


def fit_size(size: tuple[int, int], cells: int) -> tuple[int, int]:
    """The listed width and height whose aspect ratio is nearest that of an image of `size`; of
    equal ones the largest."""

    def likeness(listed: tuple[int, int]) -> float:
        ratios = [own / given for own, given in zip(listed, size, strict=True)]
        return min(ratios) / max(ratios)

    return max(list_sizes(cells), key=lambda listed: (likeness(listed), listed))
