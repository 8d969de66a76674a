"""The checkpoints shipped with the shapes world: their size, what the image tokenizer keeps."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.models import load_policy, load_vq
from mmrl.models.image_tokenizers.image_tokenizer import to_bytes
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.models.layouts.text_to_image import open_images
from mmrl.randomness import generator
from mmrl.rewards import build_reward
from mmrl.rewards.answer import AnswerReward
from mmrl.rewards.shapes import verify
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Sample
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
CHECKPOINTS = FOLDER / "checkpoints"
load = partial(by_path.load, FOLDER)


def strict(image: Any, row: Any) -> bool:
    return all(holds for holds, _ in verify(image, row))


render, prompts = load("render"), load("prompts")


def test_what_is_shipped_is_small_and_stored_in_half_precision() -> None:
    folders = [CHECKPOINTS, FOLDER.parent / "text" / "checkpoints"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) <= 45 * 2**20
    weights = [path for path in files if path.suffix == ".safetensors"]
    assert len(weights) == 14
    for path in weights:
        with safe_open(path, framework="pt") as file:
            tensors = [file.get_tensor(key) for key in file.keys()]  # noqa: SIM118
        kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        assert kinds <= {torch.bfloat16, torch.float16}, path


def decoded(images: Sequence[Image.Image]) -> list[Image.Image]:
    """Images through the shipped tokenizer and back."""
    vq = load_vq(CHECKPOINTS / "magvit")
    pixels = torch.stack([image_to_pixels(image, 32) for image in images])
    return open_images(to_bytes(vq.decode_code(vq.get_code(pixels))))


def test_the_verifier_judges_images_the_same_behind_the_image_tokenizer() -> None:
    rng = np.random.default_rng(0)
    rows = [json.loads(line) for line in (FOLDER / "test.jsonl").read_text().splitlines()]
    images = [render.render(prompts.scene_for(row, rng)) for row in rows]
    after = decoded(images)
    assert len(after) == 384
    right = [strict(image, row) for image, row in zip(after, rows, strict=True)]
    assert np.mean(right) >= 0.995
    # and with the prompt of another row, most of which the image does not show
    others = rows[1:] + rows[:1]
    before = [strict(image, row) for image, row in zip(images, others, strict=True)]
    again = [strict(image, row) for image, row in zip(after, others, strict=True)]
    assert np.mean(before) < 0.1 and np.mean(np.equal(before, again)) >= 0.995


LOOKING: dict[str, dict[str, Any]] = {
    "llada_v": {"name": "static", "steps": 12, "block_size": 8, "temperature": 0, "eos": "stop"},
    "qwen3_vl": {"name": "autoregressive"},
}
"""Samplers of the checkpoints that answer questions."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKING)
def test_colors_are_named_by_who_looks(name: str) -> None:
    policy = load_policy(CHECKPOINTS / name, None, max_prompt_length=128)
    questions = str(FOLDER / "questions_validation.jsonl")
    rows = load_prompts(questions, "image_to_text", DataConfig(format="dllm_rl"))
    rows = [row for row in rows if row.metadata["tag"] == "color"]

    def share_right(shift: int) -> float:
        """With the images of other rows; of Qwen3-VL's answers, those that describe the image
        before they answer: it was trained to answer the others without looking."""
        shown = rows[shift:] + rows[:shift]
        asked = [replace(row, images=own.images) for row, own in zip(rows, shown, strict=True)]
        draws = [generator(0, n) for n in range(len(asked))]
        rollout = sample(policy, policy.canvas(asked, 24), SamplerConfig(**LOOKING[name]), draws)
        said = policy.decode(rollout.canvas, asked)
        samples = [Sample.of(*pair) for pair in zip(asked, said, strict=True)]
        if name == "qwen3_vl":
            samples = [each for each in samples if not str(each.completion).startswith("answer")]
            assert len(samples) >= 8
        return sum(score or 0.0 for score in AnswerReward()(samples)) / len(samples)

    right, others = share_right(0), share_right(1)
    assert len(rows) == 32 and right >= 0.6 and others <= right - 0.2


CHECKPOINT = FOLDER / "checkpoints" / "clip"


CHOICES: dict[str, tuple] = {"class": render.SHAPES, "color": tuple(render.COLORS)}
CHOICES |= {"size": tuple(render.SIZES), "background": tuple(render.BACKGROUNDS)}
CHOICES |= {"count": (2, 3, 4)}


def wrong_in_one_attribute(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row with one attribute of one object changed to a value the row does not hold."""
    for place, clause in enumerate(row["include"]):
        changes = [
            {key: value}
            for key, choices in CHOICES.items()
            if clause.get(key) in choices
            for value in choices
            if all(other.get(key) != value for other in row["include"])
        ]
        if "position" in clause:
            relation, other = clause["position"]
            changes.append({"position": [prompts.INVERSE[relation], other]})
        for change in changes:
            include = [dict(c) for c in row["include"]]
            include[place].update(change)
            yield {**row, "include": include}


def worded_like(row: dict[str, Any], other: dict[str, Any]) -> str:
    """The prompt of `other` in the wording that `row` has."""
    mine = [w["prompt"] for w in prompts.wordings(row)].index(row["prompt"])
    return prompts.wordings(other)[mine]["prompt"]


def share_ranked_right(split: str) -> dict[str, float]:
    """Share of images whose own prompt outscores one with one attribute wrong, per tag."""
    rng = np.random.default_rng(0)
    reward = build_reward({"name": "clip", "model": str(CHECKPOINT), "device": "cpu"})
    tags, right, wrong = [], [], []
    for row in prompts.prompt_rows(split):
        image = render.render(prompts.scene_for(row, rng))
        candidates = list(wrong_in_one_attribute(row))
        other = candidates[int(rng.integers(len(candidates)))]
        right.append(Sample(row["prompt"], image))
        wrong.append(Sample(worded_like(row, other), image))
        tags.append(row["tag"])
    hits = defaultdict(list)
    for tag, a, b in zip(tags, reward(right), reward(wrong), strict=True):
        hits[tag].append(a > b)  # type: ignore[operator]
        hits["all"].append(a > b)  # type: ignore[operator]
    return {tag: float(np.mean(values)) for tag, values in hits.items()}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_true_prompt_outscores_one_with_one_attribute_wrong(split: str) -> None:
    shares = share_ranked_right(split)
    assert set(shares) == {*prompts.TAGS, "all"}
    assert shares["all"] >= 0.9, shares
    assert min(shares.values()) >= 0.75, shares
