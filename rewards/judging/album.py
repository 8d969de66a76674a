"""Images as a judge is shown them: PNG in data URLs, of bounded size."""

from __future__ import annotations

import base64
import io
import math

from PIL import Image

from mmrl.types import Sample
from rewards.pictures import as_rgb


class Album:
    """Images of a batch as data URLs, those of a prompt encoded once for its group."""

    def __init__(self, max_pixels: int) -> None:
        self.max_pixels = max_pixels
        self._known: dict[int, list[str]] = {}

    def pictures(self, sample: Sample) -> list[str]:
        """Those of the prompt, then that of the completion."""
        shown: list[str] = []
        if sample.images is not None:
            key = id(sample.images)  # alive as long as the batch
            if key not in self._known:
                self._known[key] = [data_url(image, self.max_pixels) for image in sample.images]
            shown += self._known[key]
        if isinstance(sample.completion, Image.Image):
            shown.append(data_url(sample.completion, self.max_pixels))
        return shown


def data_url(image: Image.Image, max_pixels: int) -> str:
    """An image as PNG in a data URL, scaled down to at most `max_pixels`."""
    image = as_rgb(image)
    scale = math.sqrt(max_pixels / (image.width * image.height))
    if scale < 1:
        size = [max(1, math.floor(side * scale)) for side in image.size]
        image = image.resize((size[0], size[1]), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
