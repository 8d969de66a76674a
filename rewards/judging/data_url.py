"""Images as a judge is shown them: PNG in data URLs, of bounded size."""

import base64
import io
import math

from PIL import Image

from rewards.parsing.images import as_rgb


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
