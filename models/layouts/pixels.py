"""Images of any size as the pixels that an image tokenizer reads, and sizes as grids of codes.

Resizing is bicubic with Pillow; sides and borders are rounded as torchvision's `Resize` and
`CenterCrop` round them, so the codes of an image are those of the public code. Deviation: `pad`
resizes before it pads, where dLLM-RL pads first, which differs at the border of the image.
Lumina-DiMOO fits images of prompts to rectangles of about the same area; its public code halves
large ones before it resizes them, and crops at a random place, here the middle is kept.
"""

from collections.abc import Sequence
from functools import cache
from math import isqrt

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.layout_config import ImageFit, LayoutConfig

GREY = (127, 127, 127)
"""Colour around an image that is padded."""
LONGEST = 4
"""Largest ratio of the sides of Lumina-DiMOO's images."""


def fit_image(image: Image.Image, size: tuple[int, int], fit: ImageFit = "crop") -> Image.Image:
    """An image of any mode -> an RGB image of this height and width."""
    return FITS[fit](image.convert("RGB"), size[::-1])


def image_to_pixels(
    image: Image.Image, size: int | tuple[int, int], fit: ImageFit = "crop"
) -> Tensor:
    """An image of any mode -> [3, height, width] float32 in [-1, 1]; `size` is both, or a side."""
    fitted = fit_image(image, (size, size) if isinstance(size, int) else size, fit)
    return torch.from_numpy(np.array(fitted)).permute(2, 0, 1).float().div(255).sub(0.5).div(0.5)


def clip_to_pixels(frames: Sequence[Image.Image], number: int, size: tuple[int, int]) -> Tensor:
    """The frames of a clip -> [3, number, height, width], see `image_to_pixels`; behind the end of
    a shorter clip its last frame stays."""
    pixels = [image_to_pixels(frame, size) for frame in frames[:number]]
    return torch.stack(pixels + pixels[-1:] * (number - len(pixels)), dim=1)


def encode_image(
    vq: ImageTokenizer, image: Image.Image, grid: tuple[int, int], fit: ImageFit
) -> Tensor:
    """Codes [height * width] int64 on the CPU of an image, fitted to a grid of so many codes; it is
    encoded alone so that no other can change them."""
    height, width = (side * vq.downsample for side in grid)
    pixels = image_to_pixels(image, (height, width), fit)
    return vq.get_code(pixels[None].to(next(vq.parameters()).device))[0].cpu()


def _crop_middle(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    if max(image.size) > 100 * min(image.size):  # enlarged whole it might take all memory
        return ImageOps.fit(image, size, Image.Resampling.BICUBIC)
    width, height = size
    if image.width * height < image.height * width:
        height = int(width * image.height / image.width)
    else:
        width = int(height * image.width / image.height)
    left, top = round((width - size[0]) / 2.0), round((height - size[1]) / 2.0)
    return _resize(image, (width, height)).crop((left, top, left + size[0], top + size[1]))


def _pad(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    if max(image.size) > min(size) * min(image.size):  # nothing would be left of the shorter side
        return ImageOps.fit(image, size, Image.Resampling.BICUBIC)
    return ImageOps.pad(image, size, Image.Resampling.BICUBIC, color=GREY)


def _resize(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)


FITS = {"crop": _crop_middle, "squash": _resize, "pad": _pad}


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


def written_grid(options: LayoutConfig, downsample: int, codes: int) -> tuple[int, int]:
    """Height and width in codes of the images that are written, `square_side` where no other is
    chosen; errors of `count_along`."""
    height, width = options.image_height, options.image_width
    side = square_side(options, downsample, codes)
    return (
        side if height is None else count_along("image_height", height, downsample),
        side if width is None else count_along("image_width", width, downsample),
    )


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
