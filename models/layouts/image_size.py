"""Sizes of images as grids of codes."""

from mmrl.models.layouts.layout_config import LayoutConfig


def count_along(key: str, side: int, downsample: int) -> int:
    """Codes along a side of so many pixels.

    Raises:
        ValueError: it is no multiple of a code's; the message names the key.
    """
    if side % downsample:
        raise ValueError(f"{key} is {side}, no multiple of {downsample}")
    return side // downsample


def written_grid(
    options: LayoutConfig, downsample: int, square: tuple[int, int]
) -> tuple[int, int]:
    """Height and width in codes of the images that are written.

    Args:
        options: what the user chose.
        downsample: pixels per code along one side.
        square: height and width where no other is chosen.

    Raises:
        ValueError: a side that is no multiple of a code's.
    """
    chosen = {"image_height": options.image_height, "image_width": options.image_width}
    height, width = (
        count if side is None else count_along(key, side, downsample)
        for (key, side), count in zip(chosen.items(), square, strict=True)
    )
    return height, width
