"""Images as files and data sets hold them."""

import io
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset, Features, Value
from datasets import Image as ImageFeature
from PIL import Image


def png(image: Image.Image) -> bytes:
    """The file of an image."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def write_images(path: Path, images: Sequence[Image.Image], prompts: Sequence[str]) -> Path:
    """Write a parquet of images with their prompts."""
    features = Features({"image": ImageFeature(), "prompt": Value("string")})
    rows = {"image": list(images), "prompt": list(prompts)}
    Dataset.from_dict(rows, features=features).to_parquet(str(path))
    return path
