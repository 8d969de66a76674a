"""Questions about the shapes world: true by the pixels, balanced, disjoint, readable and scored."""

import json
import re
from collections import Counter
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.rewards.detection.shapes_detector import DetectedObject, detect
from mmrl.types import Prompt
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
SPLITS = ("train", "validation", "test")
load = partial(by_path.load, FOLDER)
render, prompts = load("render"), load("prompts")
questions, completions = load("questions"), load("question_pairs")
_, write = load("image_pairs"), load("write_questions")


@cache
def rows_of(split: str) -> list[dict]:
    text = (FOLDER / f"questions_{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@cache
def prompts_of(split: str) -> list[Prompt]:
    path, data = FOLDER / f"questions_{split}.jsonl", DataConfig(format="dllm_rl")
    return load_prompts(str(path), "image_to_text", data)


def image_of(prompt: Prompt) -> Image.Image:
    assert prompt.images is not None and len(prompt.images) == 1
    return prompt.images[0]


def answer_of(row: dict) -> str:
    """The answer itself, also of multiple choice."""
    answer = row["ground_truth_answer"]
    return row["choices"]["ABCD".index(answer)] if row["form"] == "choice" else answer


@pytest.mark.parametrize("split", SPLITS)
def test_the_committed_files_are_what_the_generator_writes(split: str) -> None:
    drawn = questions.question_rows(split, questions.ROWS[split])
    scenes = [row.pop("scene") for row in drawn]
    assert [{k: v for k, v in row.items() if k != "image"} for row in rows_of(split)] == drawn
    for scene, prompt in zip(scenes, prompts_of(split), strict=True):
        assert (np.asarray(image_of(prompt)) == np.asarray(render.render(scene))).all()


WAYS = {"left": ("left", lambda x, y: -x >= abs(y)), "right": ("right", lambda x, y: x >= abs(y))}
WAYS |= {"above": ("above|over", lambda x, y: -y >= abs(x))}
WAYS |= {"below": ("below|under", lambda x, y: y >= abs(x))}


def named(objects: tuple[DetectedObject, ...], words: str) -> list[DetectedObject]:
    """The objects of a shape, or of a colour and a shape."""
    *color, shape = words.split()
    return [o for o in objects if o.shape == shape and (not color or o.color == color[0])]


def sides(a: DetectedObject, b: DetectedObject) -> list[str]:
    """On which sides of `b` the middle of `a` lies; two on a diagonal."""
    x, y = ((a.box[i] + a.box[i + 2] - b.box[i] - b.box[i + 2]) / 2 for i in (0, 1))
    return [name for name, (_, holds) in WAYS.items() if holds(x, y)]


def seen(tag: str, question: str, objects: tuple[DetectedObject, ...]) -> str:
    """The answer that the pixels give to the words of a question."""
    stem = question.split("\n")[0]
    if tag == "count":
        ((color, things),) = re.findall(r"how many (\w+) (\w+) (?:are|does)", stem)
        (shape,) = [name for name in render.SHAPES if prompts.plural(name) == things]
        return str(len(named(objects, f"{color} {shape}")))
    if tag == "existence":
        (words,) = re.findall(r"(?:is there|image show) an? (\w+ \w+)\?", stem)
        return "yes" if named(objects, words) else "no"
    if tag == "color":
        (asked, other) = re.findall(r"the (\w+) (?:.*) the (\w+)\?", stem)[0]
        (thing,), (beside,) = named(objects, asked), named(objects, other)
        assert any(re.search(WAYS[way][0], stem) for way in sides(thing, beside))
        return thing.color
    ((other, asked),) = re.findall(r"of the (\w+ \w+) is the (\w+ \w+):", stem)
    (thing,), (beside,) = named(objects, asked), named(objects, other)
    (side,) = sides(thing, beside)
    return side


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_is_what_the_pixels_show(split: str) -> None:
    for row, prompt in list(zip(rows_of(split), prompts_of(split), strict=True))[::2]:
        objects = detect(image_of(prompt)).objects
        assert seen(row["tag"], row["question"], objects) == answer_of(row), row["id"]


@pytest.mark.parametrize("split", SPLITS)
def test_who_does_not_look_is_right_as_often_as_chance(split: str) -> None:
    """The most frequent answer, and of multiple choice the most frequent letter."""
    for tag, answers in questions.ANSWERS.items():
        for form in questions.FORMS:
            rows = [r for r in rows_of(split) if (r["tag"], r["form"]) == (tag, form)]
            given = Counter(answer_of(row) for row in rows)
            assert len(given) == len(answers)
            assert max(given.values()) <= len(rows) / len(answers) + 1, (tag, form, given)
            if form == "choice":
                letters = Counter(row["ground_truth_answer"] for row in rows)
                number = min(4, len(answers))
                assert max(letters.values()) <= len(rows) / number + len(answers), (tag, letters)


def composition(row: dict) -> tuple:
    """What a question asks about, whatever its wording, order and direction."""
    stem = row["question"].split("\n")[0].split(":")[0]
    if row["tag"] == "relation":
        return row["tag"], *sorted(re.findall(r"the (\w+ \w+)", stem)[-2:])
    shapes = re.findall("|".join(render.SHAPES), stem)
    if row["tag"] == "color":
        (way,) = re.findall("left|right|above|over|below|under", stem)
        turned = way in ("right", "below", "under")
        axis = "across" if way in ("left", "right") else "down"
        return row["tag"], axis, *(shapes[::-1] if turned else shapes)
    return row["tag"], *re.findall("|".join(render.COLORS), stem), *shapes


def test_no_composition_is_asked_about_in_two_splits() -> None:
    asked = {split: {composition(row) for row in rows_of(split)} for split in SPLITS}
    for a, b in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not asked[a] & asked[b]
    for split in SPLITS:
        assert {tag for tag, *_ in asked[split]} == set(questions.ANSWERS)
