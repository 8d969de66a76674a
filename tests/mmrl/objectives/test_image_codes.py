"""Images become codes a few at a time, and each once."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mmrl.data.images import LazyImage
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer, load_vq
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.objectives.answer_layouts import ImageCodes

ROOT = Path(__file__).resolve().parents[3]
MAGVIT = ROOT / "datasets" / "shapes" / "checkpoints" / "magvit"


@pytest.fixture(scope="module")
def vq() -> ImageTokenizer:
    return load_vq(MAGVIT)


@pytest.fixture(scope="module")
def images() -> list[LazyImage]:
    """Thirteen images of noise, and the second one again under another place."""
    draw, found = np.random.default_rng(0), []
    for n in range(13):
        buffer = io.BytesIO()
        Image.fromarray(draw.integers(0, 256, (40, 32, 3), np.uint8)).save(buffer, "PNG")
        found.append(LazyImage(buffer.getvalue(), f"row {n}"))
    return [*found, LazyImage(found[1].source, "row 13")]


def encoded(monkeypatch: pytest.MonkeyPatch, vq: ImageTokenizer) -> list[int]:
    """How many images are encoded at a time, from now on."""
    sizes, encode = list[int](), vq.get_code

    def count(pixels: Tensor) -> Tensor:
        sizes.append(len(pixels))
        return encode(pixels)

    monkeypatch.setattr(vq, "get_code", count)
    return sizes


def direct(vq: ImageTokenizer, images: list[LazyImage]) -> Tensor:
    return torch.cat([vq.get_code(image_to_pixels(each.open(), 32)[None]) for each in images])


def test_images_are_encoded_once_a_few_at_a_time(
    vq: ImageTokenizer, images: list[LazyImage], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, sizes = direct(vq, images), encoded(monkeypatch, vq)
    codes = ImageCodes(vq, 32, "crop", at_once=5)
    assert torch.equal(codes.encode(images[:3]), expected[:3])
    assert torch.equal(codes.encode(images), expected) and codes.encode(images).dtype == torch.int64
    assert sizes == [3, 5, 5]
