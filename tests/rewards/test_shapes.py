"""What the shapes verifier promises, measured on rendered images."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from mmrl.rewards.detection import shapes_detector
from mmrl.rewards.detection.geneval_rules import score_conditions
from mmrl.rewards.detection.shapes_detector import DetectedObject, detect
from mmrl.rewards.shapes import ShapesReward, find_relations, verify
from mmrl.types import Sample
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
CIRCLE = {"tag": "single_object", "include": [{"class": "circle", "count": 1}]}


load = partial(by_path.load, FOLDER)
render, prompts = load("render"), load("prompts")


def compositions(count: int, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Compositions of all splits, uniform over tags."""
    pools = [prompts.compositions(tag) for tag in prompts.TAGS]
    for i in range(count):
        pool = pools[i % len(pools)]
        yield pool[int(rng.integers(len(pool)))]


def another(value: Any, options: Any, rng: np.random.Generator, taken: tuple = ()) -> Any:
    rest = [option for option in options if option != value and option not in taken]
    return rest[int(rng.integers(len(rest)))]


def contradiction(metadata: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The same request with one attribute changed, so that no scene of it fulfils the original."""
    include = [dict(clause) for clause in metadata["include"]]
    clause = include[int(rng.integers(len(include)))]
    can_change = ["class", *({"color", "size", "background"} & clause.keys())]
    can_change += ["count"] * (metadata["tag"] == "counting" or len(include) == 2)
    if metadata["tag"] == "position":
        clause, can_change = include[1], ["class", "position"]
    attribute = sorted(can_change)[int(rng.integers(len(can_change)))]
    if attribute == "class":
        taken = tuple(other["class"] for other in include)
        clause["class"] = another(clause["class"], render.SHAPES, rng, taken)
    elif attribute == "position":
        clause["position"] = [prompts.INVERSE[clause["position"][0]], 0]
    elif attribute == "count" and len(include) == 2:
        include.remove(clause)
    else:
        options = {"color": render.COLORS, "size": render.SIZES, "background": render.BACKGROUNDS}
        options |= {"count": range(1, 5)}
        clause[attribute] = another(clause[attribute], options[attribute], rng)
    return {**metadata, "include": include}


def decoded(image: Image.Image, rng: np.random.Generator, sigma: float) -> Image.Image:
    """What an image decoder does to an image: it blurs, and it is a little off everywhere."""
    pixels = ndimage.gaussian_filter(np.asarray(image, dtype=np.float32), (sigma, sigma, 0))
    noisy = pixels + rng.normal(0, 6, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def accuracy(
    count: int, seed: int, expected: bool, change: Callable[..., Image.Image] | None = None
) -> float:
    """Share of rendered images on which the strict verdict is the expected one."""
    rng = np.random.default_rng(seed)
    right = 0
    for metadata in compositions(count, rng):
        shown = metadata if expected else contradiction(metadata, rng)
        image = render.render(prompts.scene_for(shown, rng))
        image = image if change is None else change(image, rng)
        right += all(holds for holds, _ in verify(image, metadata)) is expected
    return right / count


def picture(*objects: tuple[str, str, int, int, int], size: int = 32) -> Image.Image:
    names = ("class", "color", "size", "column", "row")
    placed = [dict(zip(names, item, strict=True)) for item in objects]
    return render.render({"background": "grey", "objects": placed}, size)


def judge(
    image: Image.Image, *include: dict[str, Any], exact: bool = True, **metadata: Any
) -> SimpleNamespace:
    """Both scores of an image, and why it fails."""
    asked = {"tag": "single_object", "include": list(include), **metadata}
    judged = verify(image, asked, exact)
    scores = {mode: score_conditions(judged, mode) for mode in ("strict", "partial")}
    return SimpleNamespace(**scores, reason="; ".join(text for holds, text in judged if not holds))


def test_the_verifier_knows_the_palette_and_the_shapes_of_the_renderer() -> None:
    assert shapes_detector.COLORS == render.COLORS
    assert shapes_detector.BACKGROUNDS == render.BACKGROUNDS
    assert set(shapes_detector.SHAPES) == set(render.SHAPES)
    assert set(shapes_detector.SIZES) == set(render.SIZES)
    small, large = (cells / render.GRID for cells in render.SIZES.values())
    assert small < shapes_detector.LARGE_FROM < large


COUNTS = pytest.mark.parametrize("count", [800, pytest.param(5000, marks=pytest.mark.slow)])


@COUNTS
def test_images_with_one_attribute_wrong_fail(count: int) -> None:
    assert accuracy(count, seed=1, expected=False) >= 0.995


@pytest.mark.parametrize("sigma", [pytest.param(0.6, marks=pytest.mark.slow), 0.8])
def test_verdicts_survive_the_blur_and_noise_of_a_decoder(sigma: float) -> None:
    def blur(image: Image.Image, rng: np.random.Generator) -> Image.Image:
        return decoded(image, rng, sigma)

    assert accuracy(300, seed=2, expected=True, change=blur) >= 0.98
    assert accuracy(300, seed=3, expected=False, change=blur) >= 0.995


def test_objects_come_with_class_color_size_and_box() -> None:
    detection = detect(picture(("ring", "red", 3, 1, 2), ("cross", "white", 2, 6, 6)))
    assert detection.background == "grey"
    ring, cross = sorted(detection.objects, key=lambda item: item.box)
    assert (ring.shape, ring.color, ring.size) == ("ring", "red", "large")
    assert (cross.shape, cross.color, cross.size) == ("cross", "white", "small")
    assert ring.box == pytest.approx((4 / 32, 8 / 32, 16 / 32, 20 / 32), abs=0.04)
    assert cross.box == pytest.approx((24 / 32, 24 / 32, 1, 1), abs=0.04)


def test_whatever_nobody_asked_for_fails_an_image() -> None:
    image = picture(("ring", "red", 2, 0, 0), ("ring", "blue", 2, 4, 0), ("cross", "red", 2, 0, 4))
    two, cross = {"class": "ring", "count": 2}, {"class": "cross", "count": 1}
    assert judge(image, two, cross).strict
    assert judge(image, two).reason == "not asked for: cross"
    verdict = judge(image, {**two, "count": 1})
    assert not verdict.strict and verdict.partial == pytest.approx(1 / 3)
    torn = np.array(picture(("ring", "red", 2, 0, 0), ("square", "red", 2, 4, 4)))
    torn[16:20] = torn[-1, 0]
    verdict = judge(Image.fromarray(torn), {"class": "ring", "count": 1})
    assert verdict.reason == "not asked for: patch of no known shape"


def test_partial_is_the_share_of_conditions_that_hold() -> None:
    image = picture(("ring", "red", 2, 0, 0), ("cross", "blue", 2, 4, 0))
    red_ring = {"class": "ring", "count": 1, "color": "red"}
    red_cross = {"class": "cross", "count": 1, "color": "red"}
    verdict = judge(image, red_ring, red_cross)
    assert verdict.partial == 0.75 and not verdict.strict
    assert verdict.reason == "expected 1 red cross, found blue"
    assert judge(image, red_ring).partial == pytest.approx(2 / 3)
    assert judge(image, red_ring, exact=False).partial == 1.0


def test_positions_follow_box_geometry_with_a_margin() -> None:
    def box(left: float, top: float) -> DetectedObject:
        return DetectedObject("ring", "red", "small", (left, top, left + 0.2, top + 0.2), 1.0)

    assert find_relations(box(0.0, 0.4), box(0.6, 0.4)) == {"left of"}
    assert find_relations(box(0.4, 0.7), box(0.4, 0.1)) == {"below"}
    assert find_relations(box(0.0, 0.0), box(0.6, 0.6)) == {"left of", "above"}
    assert find_relations(box(0.40, 0.4), box(0.43, 0.4)) == set()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tag": "texture"}, "tag is 'texture'"),
        ({"include": []}, r"include is \[\]"),
        ({"include": [{"class": "circle"}]}, "a class and a count"),
        ({"include": [{"class": "bus", "count": 1}]}, "class is 'bus'"),
        ({"include": [{"class": "ring", "count": 1, "colour": "red"}]}, "is 'colour'"),
        ({"include": [{"class": "ring", "count": 1, "position": ["above", 3]}]}, "'above', 3"),
    ],
)
def test_malformed_metadata_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verify(picture(), {**CIRCLE, **change})


def test_the_reward_gives_one_score_per_sample_and_none_without_geneval_metadata() -> None:
    image = picture(("circle", "red", 2, 0, 0))
    blue = {"tag": "colors", "include": [{"class": "circle", "count": 1, "color": "blue"}]}
    samples = [
        Sample("a circle", image, CIRCLE),
        Sample("a blue circle", image, blue),
        Sample("what is 1 + 1?", image, {"answer": "2"}),
    ]
    assert ShapesReward()(samples) == [1.0, 0.0, None]
    assert ShapesReward(mode="partial")(samples) == [1.0, 0.5, None]
