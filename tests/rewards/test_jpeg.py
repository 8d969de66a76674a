"""The JPEG reward: kilobytes at quality 95."""

import io

import numpy as np
import pytest
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


def test_a_flat_picture_is_easier_to_compress_than_noise_and_a_coarse_file_is_smaller() -> None:
    samples = [Sample("x", Image.new("RGB", (64, 64), "teal")), Sample("x", noise(64))]
    flat, random = build_reward({"name": "jpeg"})(samples)
    assert flat > random
    assert build_reward({"name": "jpeg", "quality": 20})(samples)[1] > random


def test_a_row_scores_as_it_does_alone_whatever_its_mode() -> None:
    reward = build_reward({"name": "jpeg"})
    samples = [Sample("x", noise(32, n)) for n in range(3)]
    assert reward(samples) == [reward([sample])[0] for sample in samples]
    assert reward([]) == []
    hidden = Image.new("RGBA", (32, 32), (255, 0, 0, 0))
    white = Image.new("RGB", (32, 32), "white")
    assert reward([Sample("x", hidden)]) == reward([Sample("x", white)])


def test_a_photograph_that_was_a_jpeg_before_is_measured_anew() -> None:
    stored = io.BytesIO()
    noise(48).save(stored, format="JPEG", quality=10)
    again = Image.open(stored)
    score = build_reward({"name": "jpeg"})([Sample("x", again)])[0]
    assert -score * 1000 > stored.tell()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mode": "small"}, "mode"), ({"quality": 0}, "quality is 0.*1 to 95")],
)
def test_a_wrong_option_names_key_and_choices(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_reward({"name": "jpeg", **options})


def test_a_text_completion_is_an_error() -> None:
    with pytest.raises(ValueError, match="'jpeg' scores images.*str"):
        build_reward({"name": "jpeg"})([Sample("a red circle", "words")])
