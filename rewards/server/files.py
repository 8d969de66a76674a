"""The files of requests: images are PNG, videos WebP, which are opened first, so that their size is
known, and decoded later."""

import base64
import io
import math
from dataclasses import replace
from typing import Any

from PIL import Image

from mmrl.rewards.server.server_config import Limits
from mmrl.rewards.server.wire import MAX_TEXT, Clip, Item, Png, Problem
from mmrl.types import Sample, Video
from mmrl.types.video import count_frames, read_clip


def open_sample(item: Item, limits: Limits) -> Sample | Problem:
    """The sample of an item with images that are not decoded, or the reason why there is none."""
    made = [*item.images, *(each for each in (item.completion, item.video) if each is not None)]
    if len(made) != 1:
        has = f"{len(made)} of them, {len(item.images)} images"
        reason = f"An item needs a completion, one image or a video, and has {has}."
        return Problem("bad_item", reason)
    longest = max(len(item.prompt), len(item.completion or ""))
    if longest > MAX_TEXT:
        reason = f"A text may have {MAX_TEXT:,} characters; this one has {longest:,}."
        return Problem("too_long", reason)
    images: list[Image.Image] = []
    shown = (*item.images, *([item.video] if item.video else ()), *item.reference_images)
    for file in shown:
        opened = open_image(file, limits)
        if isinstance(opened, Problem):
            return opened
        images.append(opened)
    completion = images.pop(0) if item.completion is None else item.completion
    return Sample(item.prompt, completion, item.metadata, images or None)


def open_image(sent: Png | Clip, limits: Limits) -> Image.Image | Problem:
    """The file, not decoded; Pillow limits the size of its texts. A problem if it claims more than
    `limits` allow, or is no whole file of its kind."""
    formats, most = ("WEBP" if isinstance(sent, Clip) else "PNG",), limits.max_pixels
    try:
        file = io.BytesIO(base64.b64decode(sent.data, validate=True))
        Image.open(file, formats=formats).verify()  # all checksums of a PNG
        image = Image.open(file, formats=formats)
        frames = _frames(image)
    except Exception as error:
        return _damage(error)
    if math.prod(image.size) > most:
        reason = f"{image.width} x {image.height} pixels; an image may have {most}."
        return Problem("too_many_pixels", reason)
    if frames > limits.max_frames:
        return Problem("too_many_frames", f"{frames} frames; limits.max_frames={limits.max_frames}")
    return image


def count_pixels(sample: Sample) -> int:
    """Pixels of the images of a sample; a clip is held twice while it is decoded."""
    held = ((image, 2 if image.format == "WEBP" else 1) for image in _images(sample))
    return sum(times * _frames(image) * math.prod(image.size) for image, times in held)


def decode_sample(sample: Sample | Problem) -> Sample | Problem:
    """The sample with its images decoded, or the reason why there is none."""
    if isinstance(sample, Problem):
        return sample
    decoded: list[Any] = []
    for image in _images(sample):
        whole = decode(image)
        if isinstance(whole, Problem):
            return whole
        decoded.append(whole)
    completion = sample.completion if isinstance(sample.completion, str) else decoded.pop()
    return replace(sample, completion=completion, images=decoded or None)


def decode(image: Image.Image) -> Image.Image | Video | Problem:
    """The image, in the mode it was saved in, without texts and colour profiles, or the video; a
    problem where pixels are missing."""
    try:
        if image.format == "WEBP":
            return read_clip(image)
        image.load()
    except Exception as error:  # decoders raise various errors on broken files
        return _damage(error)
    found = image.copy()
    found.info = {key: value for key, value in image.info.items() if key == "transparency"}
    found.format = "PNG"
    return found


def _images(sample: Sample) -> list[Image.Image]:
    """Those of the prompt, then that of the completion, if it is one, or an opened clip."""
    own = [sample.completion] if isinstance(sample.completion, Image.Image) else []
    return [*(sample.images or ()), *own]


def _frames(image: Image.Image) -> int:
    """Those of a clip; 1 of a PNG, of which one is read."""
    return count_frames(image) if image.format == "WEBP" else 1


def _damage(error: Exception) -> Problem:
    reason = f"The image or clip cannot be read: {type(error).__name__} ({error})."
    is_bomb = isinstance(error, Image.DecompressionBombError)
    return Problem("too_many_pixels" if is_bomb else "decode_failed", reason[:300])
