"""The JPEG reward: kilobytes at quality 95."""

import numpy as np
from PIL import Image

from mmrl.rewards import build_reward
from mmrl.types import Sample


def noise(side: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_the_score_is_minus_the_size_of_the_file_in_kilobytes(tmp_path) -> None:
    image = noise(64)
    image.save(tmp_path / "image.jpg", quality=95)
    size = (tmp_path / "image.jpg").stat().st_size / 1000
    assert build_reward({"name": "jpeg"})([Sample("x", image)]) == [-size]
    other = build_reward({"name": "jpeg", "mode": "incompressibility"})
    assert other([Sample("x", image)]) == [size]
