"""An image of any size as the pixels that an image tokenizer reads, as MMaDA does it.

Resizing is bicubic with Pillow; sides and borders are rounded as torchvision's `Resize` and
`CenterCrop` round them, so the codes of an image are those of the public code. Deviations: an image
more than `MAX_ASPECT_RATIO` times as long as it is wide is cropped to its middle first, since a
small file may claim a side that would take all memory once the other is enlarged; `pad` resizes
before it pads, where dLLM-RL pads first, which differs in the pixels at the border of the image.
"""

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.layout_config import ImageFit

MAX_ASPECT_RATIO = 100
"""Ratio of the sides up to which the whole image is resized before it is cropped."""
GREY = (127, 127, 127)
"""Colour around an image that is padded."""


def image_to_pixels(
    image: Image.Image, size: int | tuple[int, int], fit: ImageFit = "crop"
) -> Tensor:
    """An image of any mode -> [3, height, width] float32 in [-1, 1]; `size` is both, or one side of
    a square."""
    image, (height, width) = image.convert("RGB"), (size, size) if isinstance(size, int) else size
    fitted = FITS[fit](image, (width, height))
    return torch.from_numpy(np.array(fitted)).permute(2, 0, 1).float().div(255).sub(0.5).div(0.5)


def encode_image(
    vq: ImageTokenizer, image: Image.Image, grid: tuple[int, int], fit: ImageFit
) -> Tensor:
    """Codes [height * width] int64 on the CPU of an image, fitted to a grid of so many codes; it is
    encoded alone so that no other can change them."""
    height, width = (side * vq.downsample for side in grid)
    pixels = image_to_pixels(image, (height, width), fit)
    return vq.get_code(pixels[None].to(next(vq.parameters()).device))[0].cpu()


def _crop_middle(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    image, (width, height) = _shorten(image, MAX_ASPECT_RATIO), size
    if image.width * height < image.height * width:
        height = int(width * image.height / image.width)
    else:
        width = int(height * image.width / image.height)
    left, top = round((width - size[0]) / 2.0), round((height - size[1]) / 2.0)
    return _resize(image, (width, height)).crop((left, top, left + size[0], top + size[1]))


def _pad(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    image = _shorten(image, min(MAX_ASPECT_RATIO, *size))  # at least one pixel of it remains
    return ImageOps.pad(image, size, Image.Resampling.BICUBIC, color=GREY)


def _shorten(image: Image.Image, ratio: int) -> Image.Image:
    """The middle of an image, at most `ratio` times as long as it is wide."""
    width, height = (min(side, ratio * min(image.size)) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _resize(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)


FITS = {"crop": _crop_middle, "squash": _resize, "pad": _pad}
