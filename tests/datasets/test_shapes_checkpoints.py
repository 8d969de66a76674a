"""The checkpoints shipped with the shapes world: their size, what the image tokenizer keeps."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from mmrl.models import load_vq
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.models.layouts.text_to_image import to_images
from mmrl.rewards.shapes import verify
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
CHECKPOINTS = FOLDER / "checkpoints"
load = partial(by_path.load, FOLDER)
render, prompts = load("render"), load("prompts")


def bytes_of(*names: str) -> int:
    files = [p for name in names for p in (CHECKPOINTS / name).rglob("*") if p.is_file()]
    return sum(path.stat().st_size for path in files)


def test_a_generator_and_the_image_tokenizer_are_at_most_12_mb_together_and_the_clip_4() -> None:
    for generator in ("mmada", "mmada_related", "mmada_attributes", "mmada_careless"):
        assert 0 < bytes_of(generator, "magvit") <= 12e6
    assert 0 < bytes_of("clip") <= 4e6


@pytest.mark.parametrize(
    "name", ["mmada", "mmada_related", "mmada_attributes", "mmada_careless", "magvit"]
)
def test_the_weights_are_stored_in_bfloat16(name: str) -> None:
    with safe_open(CHECKPOINTS / name / "model.safetensors", framework="pt") as file:
        tensors = [file.get_tensor(key) for key in file.keys()]  # noqa: SIM118
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    assert {tensor.dtype for tensor in floats} == {torch.bfloat16}


def decoded(images: Sequence[Image.Image]) -> list[Image.Image]:
    """Images through the shipped tokenizer and back."""
    vq = load_vq(CHECKPOINTS / "magvit")
    pixels = torch.stack([image_to_pixels(image, 32) for image in images])
    return to_images(vq.decode_code(vq.get_code(pixels)))


def test_the_verifier_judges_images_the_same_behind_the_image_tokenizer() -> None:
    rng = np.random.default_rng(0)
    rows = [json.loads(line) for line in (FOLDER / "test.jsonl").read_text().splitlines()]
    images = [render.render(prompts.scene_for(row, rng)) for row in rows]
    after = decoded(images)
    assert len(after) == 384
    right = [verify(image, row).strict for image, row in zip(after, rows, strict=True)]
    assert np.mean(right) >= 0.995
    # and with the prompt of another row, most of which the image does not show
    others = rows[1:] + rows[:1]
    before = [verify(image, row).strict for image, row in zip(images, others, strict=True)]
    again = [verify(image, row).strict for image, row in zip(after, others, strict=True)]
    assert np.mean(before) < 0.1 and np.mean(np.equal(before, again)) >= 0.995
