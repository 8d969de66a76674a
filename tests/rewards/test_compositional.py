"""The compositional reward: a tiny detector, colours by CLIP, and the verdicts."""

import copy
import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from transformers import (
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    Mask2FormerImageProcessorPil,
)

from mmrl.rewards import build_reward
from mmrl.rewards.compositional import ColorClassifier, CompositionalReward, crop
from mmrl.rewards.detection import instance_segmenter as segmenter
from mmrl.rewards.detection.geneval_rules import COCO_NAMES, COLORS
from mmrl.rewards.detection.instance_segmenter import Found
from mmrl.rewards.networks.open_clip_encoder import load_encoder
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.types import Sample
from tests.rewards.conftest import randomised


def tiny_mask2former(classes: int) -> Mask2FormerConfig:
    labels = dict(enumerate(COCO_NAMES[:classes]))
    return Mask2FormerConfig(
        backbone_config={"model_type": "swin", "embed_dim": 8, "depths": [1, 1, 1, 1]}
        | {"image_size": 64, "num_heads": [1, 1, 1, 1], "window_size": 4}
        | {"out_features": ["stage1", "stage2", "stage3", "stage4"]},
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=16,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        dim_feedforward=16,
        num_queries=12,
        id2label=labels,
        label2id={name: n for n, name in labels.items()},
    )


@pytest.fixture(autouse=True)
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmenter, "EDGES", {"shortest_edge": 64, "longest_edge": 96})


@pytest.fixture(scope="module")
def mask2former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mask2former")
    network = randomised(Mask2FormerForUniversalSegmentation(tiny_mask2former(80)), seed=1)
    network.save_pretrained(folder)
    return folder


@pytest.fixture
def alike() -> list[Image.Image]:
    """Images of one size, not square."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (5, 48, 80, 3), dtype=np.uint8)
    return [Image.fromarray(rows) for rows in pixels]


def test_colours_are_told_by_the_mean_of_three_descriptions(clip_directory: Path) -> None:
    encoder = load_encoder(
        "compositional.clip_", str(clip_directory), None, NetworkOptions(device="cpu")
    )
    random = np.random.default_rng(3)
    crops = [
        Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8)) for _ in range(12)
    ]
    name = f"local-dir:{clip_directory}"
    network, transform = open_clip.create_model_from_pretrained(name)
    tokenizer, network = open_clip.get_tokenizer(name), network.eval()
    centres = []
    with torch.no_grad():
        images = network.encode_image(torch.stack([transform(c) for c in crops]), normalize=True)
        for color in COLORS:
            texts = [
                f"a photo of a {color} dog",
                f"a photo of a {color}-colored dog",
                f"a photo of a {color} object",
            ]
            centre = network.encode_text(tokenizer(texts), normalize=True).mean(0)
            centres.append(centre / centre.norm())
    expected = [COLORS[n] for n in (images @ torch.stack(centres).T).argmax(1)]
    assert ColorClassifier(encoder)(crops, "dog") == expected
    assert len(set(expected)) > 1, "random weights must tell images apart"


@pytest.fixture
def entry(mask2former: Path, clip_directory: Path) -> dict:
    models = {"model": str(mask2former), "clip_model": str(clip_directory)}
    return {"name": "compositional", "device": "cpu", **models}


CATS = [Found("cat", (10.0 * n, 0, 10.0 * n + 8, 8), 0.9 - n / 10) for n in range(4)]


def seeing(entry: dict, found: list[Found], **options: Any) -> CompositionalReward:
    """The reward with a detector that finds the same in every image."""
    entry = {"counting_threshold": 0.3, **entry}
    reward = built(json.dumps(entry))
    if {"mode", "exact"} >= set(options):
        reward = copy.copy(reward)
        for key, value in options.items():
            setattr(reward, key, value)
    else:
        reward = built(json.dumps({**entry, **options}))

    def detect(images: list, names: Sequence[str], least: float) -> list[list[Found]]:
        mine = [item for item in found if item.name in names and item.score > least]
        return [mine for _ in images]

    reward.detector = detect  # type: ignore[assignment]
    return reward


@functools.cache
def built(entry: str) -> CompositionalReward:
    reward = build_reward(json.loads(entry))
    assert isinstance(reward, CompositionalReward)
    return reward


def sample(tag: str, *include: dict, exclude: Sequence[dict] = ()) -> Sample:
    metadata = {"tag": tag, "include": list(include), "exclude": list(exclude)}
    return Sample("a prompt", Image.new("RGB", (64, 64)), metadata)


def test_clauses_are_judged_on_what_the_detector_finds(entry: dict) -> None:
    two, three = {"class": "cat", "count": 2}, {"class": "cat", "count": 3}
    rows = [sample("two_object", {"class": "cat", "count": 1}, {"class": "dog", "count": 1})]
    rows += [sample("counting", two, exclude=[three]), sample("two_object", two)]
    rows += [Sample("no metadata", Image.new("RGB", (8, 8)))]
    assert seeing(entry, CATS)(rows) == [0.0, 0.0, 1.0, None]
    assert seeing(entry, CATS, mode="partial")(rows) == [0.5, 0.5, 1.0, None]
    third = pytest.approx(1 / 3)
    assert seeing(entry, CATS, exact=True, mode="partial")(rows) == [0.5, third, 0.5, None]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ([{"class": "cat", "count": 4}], 1.0),
        ([{"class": "cat", "count": 3}], 1 - 1 / 3),
        ([{"class": "cat", "count": 1}], -2.0),  # three too many
        ([{"class": "dog", "count": 2}], 0.5),
        ([{"class": "cat", "count": 4}, {"class": "dog", "count": 1}], 1.0),
        ([{"class": "dog", "count": 1, "color": "blue"}], 1.0),
        ([{"class": "dog", "count": 1, "color": "red"}], 0.5),
        ([{"class": "dog", "count": 2, "color": "red"}], 0.25),  # a wrong count pays no colour
    ],
)
def test_continuous_credit_is_flow_grpos(entry: dict, clauses: list[dict], expected: float) -> None:
    dog = Found("dog", (50.0, 0.0, 58.0, 8.0), 0.8)
    reward = seeing(entry, [*CATS, dog], mode="continuous")
    reward.colors = lambda crops, name: ["blue"] * len(crops)  # type: ignore[assignment]
    assert reward([sample("counting", *clauses)]) == [pytest.approx(expected)]


def test_counting_has_its_own_threshold(entry: dict) -> None:
    rows = [sample(tag, {"class": "cat", "count": 3}) for tag in ("counting", "two_object")]
    assert seeing(entry, CATS, threshold=0.75, counting_threshold=0.5)(rows) == [1.0, 0.0]


def test_positions_and_colours_count(entry: dict) -> None:
    dog = Found("dog", (50.0, 0.0, 58.0, 8.0), 0.8)
    left = {"class": "cat", "count": 1, "position": ["left of", 0]}
    right = {"class": "cat", "count": 1, "position": ["right of", 0]}
    reward = seeing(entry, [*CATS[:1], dog], mode="partial")
    rows = [sample("position", {"class": "dog", "count": 1}, clause) for clause in (left, right)]
    assert reward(rows) == [1.0, pytest.approx(2 / 3)]
    reward.colors = lambda crops, name: [{"cat": "red", "dog": "blue"}[name]] * len(crops)  # type: ignore[assignment]
    reds = [{"class": name, "count": 1, "color": "red"} for name in ("cat", "dog")]
    assert reward([sample("color_attr", *reds)]) == [pytest.approx(3 / 4)]


def test_pictures_of_several_sizes_and_prompts_score_as_they_do_alone(
    entry: dict, alike: list[Image.Image]
) -> None:
    reward = build_reward(
        {**entry, "threshold": 0.001, "counting_threshold": 0.001, "mode": "partial"}
    )
    clauses = [
        [{"class": "cell phone", "count": 2}, {"class": "dog", "count": 1, "color": "red"}],
        [{"class": "dog", "count": 3, "position": ["above", 0]}],
        [{"class": "dog", "count": 1}],
    ]
    rows = [
        Sample("x", image.resize((80, 40 + 8 * (n % 2))), {"tag": "counting", "include": c})
        for n, (image, c) in enumerate(zip(alike, [*clauses, *clauses[:2]], strict=True))
    ]
    together = reward(rows)
    assert together == [reward([row])[0] for row in rows]
    assert len(set(together)) > 1, "random weights must tell images apart"


def test_mask2former_finds_objects_with_masks_by_genevals_formula(
    mask2former: Path, clip_directory: Path, alike: list[Image.Image]
) -> None:
    models = {"model": str(mask2former), "clip_model": str(clip_directory)}
    options = {"device": "cpu", "batch_size": 3, "mode": "continuous"}
    reward = build_reward({"name": "compositional", **models, **options})
    assert isinstance(reward, CompositionalReward)
    names = COCO_NAMES[:40]
    found = reward.detector(alike, names, 0.001)
    network = Mask2FormerForUniversalSegmentation.from_pretrained(mask2former).eval()
    processor = Mask2FormerImageProcessorPil(size=segmenter.EDGES, size_divisor=32)
    for image, mine in zip(alike, found, strict=True):
        with torch.no_grad():
            output = network(**processor(images=[image], return_tensors="pt"))
        expected = []
        classes = output.class_queries_logits[0].softmax(-1)[:, :80]
        least = classes.flatten().sort(descending=True)[0][99]
        masks = F.interpolate(output.masks_queries_logits, (64, 96), mode="bilinear")
        masks = F.interpolate(masks, (48, 80), mode="bilinear")[0]
        for query, name in itertools.product(range(12), names):
            chance, inside = classes[query, COCO_NAMES.index(name)], masks[query] > 0
            if chance < least or not inside.any():
                continue
            score = (chance * masks[query][inside].sigmoid().mean()).item()
            rows, columns = inside.nonzero().T
            box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            expected.append((name, tuple(map(int, box)), int(inside.sum()), score))
        expected = sorted(row for row in expected if row[3] > 0.001)
        shown = sorted((item.name, item.box, item.mask.sum(), item.score) for item in mine)
        assert [row[:3] for row in shown] == [row[:3] for row in expected]
        assert [row[3] for row in shown] == pytest.approx([row[3] for row in expected], rel=1e-4)
        assert mine == sorted(mine, key=lambda item: -item.score)
    assert sum(map(len, found)) > 50, "random weights must find something"
    assert len({item.mask.sum() for mine in found for item in mine}) > 10, "and tell masks apart"
    rows = [sample("colors", {"class": "dog", "count": 1, "color": "red"}) for _ in range(2)]
    assert all(score is not None for score in reward(rows))
    with pytest.raises(ValueError, match="class is 'unicorn'"):
        reward.check({"tag": "colors", "include": [{"class": "unicorn", "count": 1}]})


def test_what_lies_outside_a_mask_is_grey() -> None:
    image, mask = Image.new("RGB", (8, 6), "red"), np.zeros((6, 8), bool)
    mask[1:3, 2:5] = True
    part = crop(image, (1.0, 0.0, 6.0, 4.0), mask)
    assert part.size == (5, 4)
    assert part.getpixel((0, 0)) == (153, 153, 153) and part.getpixel((1, 1)) == (255, 0, 0)
    assert sorted(part.getcolors() or []) == [(6, (255, 0, 0)), (14, (153, 153, 153))]


def test_a_mask2former_of_other_classes_is_refused(entry: dict, tmp_path: Path) -> None:
    Mask2FormerForUniversalSegmentation(tiny_mask2former(3)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="compositional.model .* has 3 classes.*COCO's 80"):
        build_reward({**entry, "model": str(tmp_path)})
