"""An image of any size as the pixels that an image tokenizer reads, as MMaDA does it.

Resizing is bicubic with Pillow; sides and borders are rounded as torchvision's `Resize` and
`CenterCrop` round them, so the codes of an image are those of the public code.
"""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.layout_config import ImageFit


def image_to_pixels(
    image: Image.Image, size: int | tuple[int, int], fit: ImageFit = "crop"
) -> Tensor:
    """An image of any mode -> [3, height, width] float32 in [-1, 1]; `size` is both, or one side of
    a square."""
    image, (height, width) = image.convert("RGB"), (size, size) if isinstance(size, int) else size
    fitted = (_crop_middle if fit == "crop" else _resize)(image, (width, height))
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
    width, height = size
    if image.width * height < image.height * width:
        height = int(width * image.height / image.width)
    else:
        width = int(height * image.width / image.height)
    left, top = round((width - size[0]) / 2.0), round((height - size[1]) / 2.0)
    return _resize(image, (width, height)).crop((left, top, left + size[0], top + size[1]))


def _resize(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)
