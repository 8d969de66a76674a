"""Images of samples, in RGB or encoded as files."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from PIL import Image

from mmrl.config import ConfigError
from mmrl.types import Sample, Video

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

_TIFF_BITS, _TIFF_PHOTOMETRIC = 258, 262

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)
"""Mean and deviation per channel of CLIP's training images, used by many networks."""


def image_of(sample: Sample, reward: str) -> Image.Image:
    """The completion of `sample`, a PIL image of any mode, in mode RGB; messages name the asking
    `reward`. Raises ValueError: the completion is not an image."""
    if not isinstance(sample.completion, Image.Image):
        raise ValueError(
            f"reward {reward!r} scores images, but the completion for prompt {sample.prompt[:80]!r}"
            f" is a {type(sample.completion).__name__}; give this reward only to tasks that"
            " generate images."
        )
    return as_rgb(sample.completion)


def video_of(sample: Sample, reward: str) -> Video:
    """The completion of `sample`, a video of a frame or more; messages name the asking `reward`.
    Raises ValueError: the completion is none."""
    video = sample.completion
    if isinstance(video, Video) and len(video):
        return video
    found = "a video without frames" if isinstance(video, Video) else f"a {type(video).__name__}"
    raise ValueError(
        f"reward {reward!r} scores videos, but the completion for prompt {sample.prompt[:80]!r} is"
        f" {found}; give this reward only to tasks that generate videos."
    )


def read_pixels(image: Image.Image) -> Tensor:
    """[3, H, W] float32 in [0, 1] of an RGB image."""
    import torch

    # a copy, because torch refuses the read-only buffer of a PIL image
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def keep_tensor_steps(transform: Any) -> Any:
    """The steps of a torchvision transform of images that take pixels [3, H, W] in [0, 1] too:
    those that resize, crop and normalise, which are modules. They have a gradient."""
    from torch import nn
    from torchvision.transforms import Compose, ToTensor

    steps = transform.transforms
    return Compose([x for x in steps if isinstance(x, nn.Module) and not isinstance(x, ToTensor)])


def as_rgb(image: Image.Image) -> Image.Image:
    """Any PIL image in mode RGB, of prompts, completions and requests alike.

    16 bits are scaled to 8 (Pillow's own conversion clips them), and transparent parts show white,
    as on a page. Raises ConfigError: samples without a defined white (32 bits, floats)."""
    image = _eight_bits(image)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        page = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(page, layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey to 8 bits, the largest value to 255; others are returned as they are."""
    if image.mode in ("I", "F") and image.format not in (None, "PNG"):
        raise ConfigError("has samples of 32 bits, without a defined white. Save it with 8 or 16.")
    if not image.mode.startswith("I;16") and (image.mode, image.format) != ("I", "PNG"):
        return image  # without a file, 32 bits are those of Pillow, which hold 8
    values, tags = np.asarray(image).astype(np.uint32), getattr(image, "tag_v2", {})
    largest = 2 ** tags.get(_TIFF_BITS, (16,))[0] - 1
    scaled = (values * 255 + largest // 2) // largest
    if tags.get(_TIFF_PHOTOMETRIC) == 0:  # 0 is white; Pillow inverts 8 bits only
        scaled = 255 - scaled
    scaled[values == image.info.get("transparency", -1)] = 255
    return Image.fromarray(scaled.astype(np.uint8))


class Files(Generic[T]):
    """Encodes the images of a call as files, each once."""

    def __init__(self, encode: Callable[[Image.Image], T]) -> None:
        self._encode = encode
        # with the images, because a new one could get the id of a deleted one
        self._known: dict[int, tuple[object, list[T]]] = {}

    def of_sample(self, sample: Sample) -> list[T]:
        """The files of the images of its prompt, then that of its completion, if it is one."""
        completion = sample.completion
        own = [self.completion(completion)] if isinstance(completion, Image.Image) else []
        return [*self.of_prompt(sample), *own]

    def completion(self, image: Image.Image) -> T:
        """The file of a completion."""
        return self._encode_once(image, [image])[0]

    def of_prompt(self, sample: Sample) -> list[T]:
        """The files of the images of its prompt, shared by its group."""
        return self._encode_once(sample.images, sample.images or [])

    def _encode_once(self, key: object, images: Iterable[Image.Image]) -> list[T]:
        if id(key) not in self._known:
            self._known[id(key)] = key, [self._encode(image) for image in images]
        return self._known[id(key)][1]


PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
"""Modes whose pixels a PNG file keeps; others are converted by `as_rgb`."""


def png(image: Image.Image) -> bytes:
    """A PNG file that decodes to the same pixels, compressed fast: it serves one request."""
    return _file(image if image.mode in PNG_MODES else as_rgb(image), "PNG", compress_level=1)


def jpeg(image: Image.Image, quality: int) -> bytes:
    """A JPEG file, whose pixels differ slightly from those of the image."""
    return _file(as_rgb(image), "JPEG", quality=quality)


def data_url(image: Image.Image, max_pixels: int) -> str:
    """An image as PNG in a data URL, scaled down to at most `max_pixels`."""
    image = as_rgb(image)
    scale = math.sqrt(max_pixels / (image.width * image.height))
    if scale < 1:
        size = [max(1, math.floor(side * scale)) for side in image.size]
        image = image.resize((size[0], size[1]), Image.Resampling.LANCZOS)
    return f"data:image/png;base64,{base64.b64encode(_file(image, 'PNG')).decode()}"


def _file(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()
