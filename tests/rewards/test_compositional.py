"""The compositional reward: tiny detectors of three families, colours by CLIP, and the verdicts."""

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
    AutoModelForZeroShotObjectDetection,
    AutoProcessor,
    AutoTokenizer,
    BertTokenizer,
    GroundingDinoConfig,
    GroundingDinoForObjectDetection,
    GroundingDinoImageProcessor,
    GroundingDinoProcessor,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    Mask2FormerImageProcessorPil,
    Owlv2Config,
    Owlv2ForObjectDetection,
    Owlv2ImageProcessor,
    Owlv2Processor,
)

from mmrl.rewards import build_reward
from mmrl.rewards.compositional import ColorClassifier, CompositionalReward, crop
from mmrl.rewards.detection import instance_segmenter as segmenter
from mmrl.rewards.detection.coco_names import COCO_NAMES
from mmrl.rewards.detection.geneval_rules import COLORS
from mmrl.rewards.detection.object_detectors import Found, ObjectDetector
from mmrl.rewards.networks.open_clip_encoder import load_encoder
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.types import Sample
from tests.rewards.conftest import randomised

NAMES = ("cell phone", "dog")
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def owlv2(clip_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("owlv2")
    words = AutoTokenizer.from_pretrained(clip_tokenizer, model_max_length=16)
    Owlv2Processor(Owlv2ImageProcessor(size={"height": 64, "width": 64}), words).save_pretrained(
        directory
    )
    sizes = {**TINY, "intermediate_size": 32}
    config = Owlv2Config(
        text_config={**sizes, "vocab_size": 49408, "max_position_embeddings": 16},
        vision_config={**sizes, "image_size": 64, "patch_size": 16},
        projection_dim=32,
    )
    network = randomised(Owlv2ForObjectDetection(config), seed=0)
    network.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def grounding_dino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("grounding_dino")
    vocabulary = {f"[unused{n}]": n for n in range(1040)}
    placed = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]", 1012: "."}
    for n, word in {**placed, 1029: "?", 1: "cell", 2: "phone", 3: "dog"}.items():
        vocabulary = {k: v for k, v in vocabulary.items() if v != n} | {word: n}
    pixels = GroundingDinoImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    GroundingDinoProcessor(pixels, BertTokenizer(vocab=vocabulary)).save_pretrained(directory)
    config = GroundingDinoConfig(
        backbone_config={
            "model_type": "swin",
            "embed_dim": 8,
            "depths": [1, 1, 1, 1],
            "image_size": 64,
            "num_heads": [1, 1, 1, 1],
            "window_size": 4,
            "out_indices": [2, 3, 4],
        },
        text_config={
            **TINY,
            "model_type": "bert",
            "intermediate_size": 16,
            "vocab_size": 1040,
            "max_position_embeddings": 32,
        },
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_queries=12,
        encoder_n_points=2,
        decoder_n_points=2,
        max_text_len=32,
    )
    network = randomised(GroundingDinoForObjectDetection(config), seed=1)
    network.save_pretrained(directory)
    return directory


def tiny_mask2former(classes: int) -> Mask2FormerConfig:
    labels = dict(enumerate(COCO_NAMES[:classes]))
    return Mask2FormerConfig(
        backbone_config={
            "model_type": "swin",
            "embed_dim": 8,
            "depths": [1, 1, 1, 1],
            "image_size": 64,
            "num_heads": [1, 1, 1, 1],
            "window_size": 4,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
        },
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


@pytest.fixture
def mask2former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(segmenter, "EDGES", {"shortest_edge": 64, "longest_edge": 96})
    network = randomised(Mask2FormerForUniversalSegmentation(tiny_mask2former(80)), seed=1)
    network.save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def alike() -> list[Image.Image]:
    """Images of one size, not square."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (5, 48, 80, 3), dtype=np.uint8)
    return [Image.fromarray(rows) for rows in pixels]


def detector(model: Path, **options: Any) -> ObjectDetector:
    settings = {"device": "cpu", "batch_size": 8, "fill": 1, **options}
    return ObjectDetector(str(model), "compositional.model", NetworkOptions(**settings))


def numbers(found: Sequence[Found]) -> torch.Tensor:
    return torch.tensor([[*item.box, item.score] for item in found])


def test_owlv2_finds_what_transformers_finds(owlv2: Path, alike: list[Image.Image]) -> None:
    processor = AutoProcessor.from_pretrained(owlv2)
    network = AutoModelForZeroShotObjectDetection.from_pretrained(owlv2).eval()
    found = detector(owlv2)(alike, NAMES, 0.2)
    for image, mine in zip(alike, found, strict=True):
        words = [[f"a photo of a {name}" for name in NAMES]]
        inputs = processor(images=image, text=words, return_tensors="pt")
        with torch.no_grad():
            output = network(**inputs)
        expected = processor.post_process_grounded_object_detection(
            output, threshold=0.2, target_sizes=[(48, 80)], text_labels=[list(NAMES)]
        )[0]
        order = expected["scores"].argsort(descending=True, stable=True)
        assert 0 < len(mine) == len(order)
        assert [item.name for item in mine] == [expected["text_labels"][n] for n in order]
        rows = torch.cat((expected["boxes"], expected["scores"][:, None]), dim=1)[order]
        torch.testing.assert_close(numbers(mine), rows, atol=1e-4, rtol=1e-4)
    assert {item.name for mine in found for item in mine} == set(NAMES)


def test_grounding_dino_scores_a_name_by_the_mean_of_its_tokens(
    grounding_dino: Path, alike: list[Image.Image]
) -> None:
    processor = AutoProcessor.from_pretrained(grounding_dino)
    network = AutoModelForZeroShotObjectDetection.from_pretrained(grounding_dino).eval()
    found = detector(grounding_dino)(alike, NAMES, 0.0)
    for image, mine in zip(alike, found, strict=True):
        inputs = processor(images=image, text="cell phone. dog.", return_tensors="pt")
        assert inputs["input_ids"].tolist() == [[101, 1, 2, 1012, 3, 1012, 102]]
        with torch.no_grad():
            output = network(**inputs)
        tokens = output.logits[0].sigmoid()
        scores = torch.stack((tokens[:, 1:3].mean(1), tokens[:, 4]), dim=1)
        x, y, width, height = output.pred_boxes[0].T
        boxes = torch.stack((x - width / 2, y - height / 2, x + width / 2, y + height / 2), dim=1)
        boxes = boxes * torch.tensor([80, 48, 80, 48])
        best, kind = scores.max(1)
        order = best.argsort(descending=True, stable=True)
        assert [item.name for item in mine] == [NAMES[n] for n in kind[order]]
        rows = torch.cat((boxes, best[:, None]), dim=1)[order]
        torch.testing.assert_close(numbers(mine), rows, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("family", ["owlv2", "grounding_dino"])
def test_a_picture_shows_what_it_shows_alone(
    family: str, alike: list[Image.Image], request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(family)
    one = detector(path, batch_size=3, fill=2)
    together = one(alike, NAMES, 0.1)
    alone = [one([image], NAMES, 0.1)[0] for image in alike]
    for mine, expected in zip(together, alone, strict=True):
        assert [item.name for item in mine] == [item.name for item in expected]
        torch.testing.assert_close(numbers(mine), numbers(expected), atol=1e-3, rtol=1e-4)
    half = detector(path, dtype="bfloat16")(alike[:1], NAMES, 0.0)[0]
    assert len(half) == len(one(alike[:1], NAMES, 0.0)[0])


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


def test_a_crop_stays_inside_the_picture_and_has_a_pixel() -> None:
    image = Image.new("RGB", (20, 10))
    assert crop(image, (1.6, 2.4, 7.5, 9.0)).size == (6, 7)
    assert crop(image, (-5.0, -5.0, 50.0, 50.0)).size == (20, 10)
    assert crop(image, (25.0, 12.0, 30.0, 15.0)).size == (1, 1)
    assert crop(image, (3.0, 3.0, 3.2, 3.1)).size == (1, 1)


@pytest.fixture
def entry(owlv2: Path, clip_directory: Path) -> dict:
    models = {"model": str(owlv2), "clip_model": str(clip_directory)}
    return {"name": "compositional", "device": "cpu", **models}


CATS = [Found("cat", (10.0 * n, 0, 10.0 * n + 8, 8), 0.9 - n / 10) for n in range(4)]


def seeing(entry: dict, found: list[Found], **options: Any) -> CompositionalReward:
    """The reward with a detector that finds the same in every image."""
    reward = built(json.dumps(entry))
    if {"mode", "exact", "position_credit"} >= set(options):
        reward = copy.copy(reward)
        for key, value in options.items():
            setattr(reward, key, value)
    else:
        reward = built(json.dumps({**entry, **options}))

    def detect(images: list, names: Sequence[str], least: float) -> list[list[Found]]:
        mine = [item for item in found if item.name in names and item.score > least]
        return [mine for _ in images]

    detect.names = reward.detector.names  # type: ignore[attr-defined]
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
    rows = [
        sample("two_object", {"class": "cat", "count": 1}, {"class": "dog", "count": 1}),
        sample("counting", two, exclude=[three]),
        sample("two_object", two),
        Sample("no metadata", Image.new("RGB", (8, 8))),
    ]
    assert seeing(entry, CATS)(rows) == [0.0, 0.0, 1.0, None]
    assert seeing(entry, CATS, mode="partial")(rows) == [0.5, 0.5, 1.0, None]
    assert seeing(entry, CATS, exact=True, mode="partial")(rows) == [
        0.5,
        pytest.approx(1 / 3),
        0.5,
        None,
    ]


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


def test_a_wrong_position_earns_half_only_as_published(entry: dict) -> None:
    dog = Found("dog", (50.0, 0.0, 58.0, 8.0), 0.8)
    cat = {"class": "cat", "count": 1}
    left = [cat, {"class": "dog", "count": 1, "position": ["left of", 0]}]
    right = [cat, {"class": "dog", "count": 1, "position": ["right of", 0]}]
    nowhere = [{"class": "cat", "count": 2}, right[1]]
    rows = [sample("position", *each) for each in (left, right, nowhere)]
    reward = seeing(entry, [CATS[0], dog], mode="continuous")
    assert reward(rows) == pytest.approx([2 / 3, 1.0, 0.5])
    reward = seeing(entry, [CATS[0], dog], mode="continuous", position_credit=True)
    assert reward(rows) == pytest.approx([3 / 4, 1.0, 0.5])


def test_counting_has_its_own_threshold(entry: dict) -> None:
    rows = [sample(tag, {"class": "cat", "count": 3}) for tag in ("counting", "two_object")]
    assert seeing(entry, CATS, threshold=0.5)(rows) == [1.0, 1.0]
    assert seeing(entry, CATS, threshold=0.5, counting_threshold=0.75)(rows) == [0.0, 1.0]
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
    reward = build_reward({**entry, "threshold": 0.2, "mode": "partial"})
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "soft"}, "mode"),
        ({"threshold": 1.0}, "threshold is 1.0; it must be from 0 to below 1"),
        ({"clip_model": "ViT-L-41"}, "compositional.clip_model is 'ViT-L-41'"),
        ({"model": "nowhere/at/all"}, "compositional.model is 'nowhere/at/all'"),
    ],
)
def test_a_wrong_option_names_key_and_value(entry: dict, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_reward({**entry, **options})


def test_mask2former_finds_objects_with_masks_by_genevals_formula(
    mask2former: Path, clip_directory: Path, alike: list[Image.Image]
) -> None:
    models = {"model": str(mask2former), "clip_model": str(clip_directory)}
    options = {"device": "cpu", "max_overlap": 1.0, "batch_size": 3, "mode": "continuous"}
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
    with pytest.raises(ValueError, match="class is 'unicorn'; it must be a class of COCO. OWLv2"):
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


def test_a_model_of_another_family_is_refused(entry: dict, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="model_type of compositional.model.*'bert'.*owlv2"):
        build_reward({**entry, "model": str(tmp_path)})


def test_malformed_metadata_and_texts_are_refused(entry: dict) -> None:
    reward = seeing(entry, CATS)
    reward.check({"answer": 1})
    with pytest.raises(ValueError, match="color='mauve'"):
        reward([sample("colors", {"class": "cat", "count": 1, "color": "mauve"})])
    with pytest.raises(ValueError, match="class is 'a. b'"):
        reward.check({"tag": "colors", "include": [{"class": "a. b", "count": 1}]})
    with pytest.raises(ValueError, match="'compositional' scores images.*str"):
        reward([Sample("a cat", "words")])
