"""Images become codes a few at a time, once, and in a folder once for all processes and runs."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mmrl.data.lazy_images import LazyImage
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer, load_vq
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.objectives.data_config import ImageCodesConfig
from mmrl.objectives.image_codes import ImageCodes, identify

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


def codes_of(vq: ImageTokenizer, folder: Path | None = None, size: int = 32, **changes: Any) -> Any:
    cache = None if folder is None else str(folder)
    return ImageCodes(vq, size, "crop", ImageCodesConfig(codes_cache=cache, **changes))


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
    codes = codes_of(vq, encode_batch_size=5)
    assert torch.equal(codes.encode(images[:3]), expected[:3])
    assert torch.equal(codes.encode(images), expected) and codes.encode(images).dtype == torch.int64
    assert sizes == [3, 5, 5]


def test_a_folder_gives_later_runs_the_codes_that_were_encoded(
    vq: ImageTokenizer, images: list[LazyImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = codes_of(vq, tmp_path).encode(images)
    sizes = encoded(monkeypatch, vq)
    again = codes_of(vq, tmp_path)
    assert torch.equal(again.encode(images), expected) and sizes == []
    assert again.memory == {}  # what is on the disk takes no memory
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".npy"}
    codes_of(vq, tmp_path, size=16).encode(images[:2])
    other = load_vq(MAGVIT)
    assert identify(other) == identify(vq)
    next(other.parameters()).data.add_(1e-3)
    codes_of(other, tmp_path).encode(images[:2])
    assert sizes == [2] and len(list(tmp_path.iterdir())) == 3  # nothing was taken for another


def test_a_damaged_file_is_reported_and_its_images_are_encoded_anew(
    vq: ImageTokenizer,
    images: list[LazyImage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = codes_of(vq, tmp_path)
    expected = running.encode(images)
    for n, path in enumerate(tmp_path.rglob("*.npy")):
        path.write_bytes(path.read_bytes()[: 40 * (n % 4)])
    sizes = encoded(monkeypatch, vq)
    for codes in (running, codes_of(vq, tmp_path)):
        assert torch.equal(codes.encode(images), expected)
    assert "cannot be read" in caplog.text and sum(sizes) == 13
