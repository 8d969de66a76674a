"""Questions about the shapes world: true by the pixels, balanced, disjoint, readable and scored."""

import io
import itertools
import json
import re
from collections import Counter, defaultdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.models.layouts.image_chat import SYSTEM
from mmrl.models.policy import load_tokenizer
from mmrl.rewards import build_reward
from mmrl.rewards.detection.shapes_detector import DetectedObject, detect
from mmrl.types import Prompt, Sample
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
SPLITS = ("train", "validation", "test")
load = partial(by_path.load, FOLDER)
render, prompts = load("render"), load("prompts")
questions, completions = load("questions"), load("question_pairs")
write = load("write_questions")


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


WAYS = {
    "left": ("left", lambda x, y: -x >= abs(y)),
    "right": ("right", lambda x, y: x >= abs(y)),
    "above": ("above|over", lambda x, y: -y >= abs(x)),
    "below": ("below|under", lambda x, y: y >= abs(x)),
}


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
def test_every_tag_and_form_has_as_many_rows(split: str) -> None:
    rows = rows_of(split)
    counts = Counter((row["tag"], row["form"]) for row in rows)
    assert len(rows) == questions.ROWS[split] and len(counts) == 8
    assert set(counts.values()) == {len(rows) // 8}
    assert len({row["id"] for row in rows}) == len(rows)


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


def test_the_words_of_a_training_question_do_not_tell_the_answer_of_a_test_question() -> None:
    """The best rule that reads no picture: the answer that was most frequent in training for the
    same tag, and the same shapes, colours and sides in the words of the question."""
    names = re.compile(
        r"left|right|above|below|over|under|" + "|".join((*render.SHAPES, *render.COLORS))
    )
    rule: dict[tuple, Counter] = defaultdict(Counter)
    for row in rows_of("train"):
        for word in names.findall(row["question"].split("\n")[0]):
            rule[row["tag"], word][answer_of(row)] += 1
    for tag, answers in questions.ANSWERS.items():
        rows = [row for row in rows_of("test") if row["tag"] == tag]
        right = 0
        for row in rows:
            votes: Counter = Counter()
            for word in names.findall(row["question"].split("\n")[0]):
                votes.update(rule[tag, word])
            right += votes.most_common(1)[0][0] == answer_of(row)
        chance = 1 / len(answers)
        assert right / len(rows) <= chance + 3 * (chance * (1 - chance) / len(rows)) ** 0.5, tag


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


def test_a_limit_keeps_every_tag_and_form_and_most_answers() -> None:
    path, data = FOLDER / "questions_test.jsonl", DataConfig(format="dllm_rl")
    kept = load_prompts(str(path), "image_to_text", data, limit=64)
    counts = Counter((p.metadata["tag"], p.metadata["form"]) for p in kept)
    assert len(counts) == 8 and set(counts.values()) == {8}
    colors = {
        p.answer for p in kept if (p.metadata["tag"], p.metadata["form"]) == ("color", "short")
    }
    assert len(colors) >= 4


def test_a_question_without_its_object_shows_others_of_its_shape_and_of_its_colour() -> None:
    for row in questions.question_rows("test", 160, seed=3):
        if row["tag"] == "existence" and answer_of(row) == "no":
            color, shape = composition(row)[1:]
            objects = row["scene"]["objects"]
            assert any(item["class"] == shape for item in objects)
            assert any(item["color"] == color for item in objects)


def test_the_reward_gives_a_right_answer_one_and_every_other_zero() -> None:
    reward: Any = build_reward({"name": "answer"})
    for prompt in prompts_of("test"):
        reward.check(prompt.facts)
        tag, form = prompt.metadata["tag"], prompt.metadata["form"]
        options = prompt.metadata["choices"] if form == "choice" else questions.ANSWERS[tag]
        said = list(options) + (list("ABCD"[: len(options)]) if form == "choice" else [])
        scores = reward([Sample(prompt.text, text, prompt.facts) for text in said])
        assert sum(scores) == (2 if form == "choice" else 1)


def test_another_seed_asks_other_questions_and_an_equal_one_the_same() -> None:
    first = questions.question_rows("train", 24, seed=1)
    assert first == questions.question_rows("train", 24, seed=1)
    assert first != questions.question_rows("train", 24, seed=2)


def test_supervised_pairs_load_as_images_with_answers(tmp_path: Path) -> None:
    from datasets import load_dataset

    write.main([f"out={tmp_path}", "pairs=48", "seed=5"])
    path = str(tmp_path / "question_pairs.parquet")
    data = load_dataset("parquet", data_files=path, cache_dir=str(tmp_path), split="train")
    assert len(data) == 48 and data[0]["image"].size == (32, 32)
    assert set(Counter(zip(data["tag"], data["form"], strict=True)).values()) == {6}
    assert all(
        re.search(" answer: [A-D]$", c)
        for c, f in zip(data["completion"], data["form"], strict=True)
        if f == "choice"
    )
    for split in SPLITS:
        written = (tmp_path / f"questions_{split}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["id"] for line in written] == [r["id"] for r in rows_of(split)]


def test_a_description_names_what_the_pixels_show() -> None:
    found = completions.pairs(60, seed=4, descriptions=1.0)
    assert set(found["prompt"]) == {completions.DESCRIBE}
    for image, text in zip(found["image"], found["completion"], strict=True):
        objects = detect(Image.open(io.BytesIO(image["bytes"]))).objects
        words, _, background = text.rpartition(" on ")
        named = [tuple(part.split()[1:]) for part in words.split(", ")]
        cells = [(o.color, o.shape, f"{round(8 * o.box[0])}{round(8 * o.box[1])}") for o in objects]
        assert sorted(named) == sorted(cells) and background in render.BACKGROUNDS
        assert [place[::-1] for *_, place in named] == sorted(place[::-1] for *_, place in named)


def test_an_answer_is_right_and_begins_with_the_cells_of_what_is_asked_about() -> None:
    reward: Any = build_reward({"name": "answer"})
    rows = questions.question_rows("train", 160, seed=9)
    for row, lettered in itertools.product(rows, (False, True)):
        if lettered and row["form"] != "choice":
            continue
        text = completions.answer(row, lettered=lettered)
        facts = {"answer": row["ground_truth_answer"], "choices": row.get("choices")}
        facts = {key: value for key, value in facts.items() if value is not None}
        assert reward([Sample(row["question"], text, facts)]) == [1.0]
        notes, _, _ = text.partition(" answer: ")
        objects = detect(render.render(row["scene"])).objects
        there = {(o.color, o.shape, f"{round(8 * o.box[0])}{round(8 * o.box[1])}") for o in objects}
        things = [thing.split() for thing in notes.split(", ") if thing != "none"]
        said = {(color, shape, cell) for color, shape, *cells in things for cell in cells}
        assert said <= there, (text, there)
        if row["tag"] == "count":
            assert len(said) == int(answer_of(row))
        assert bool(said) == (answer_of(row) != "no")


def test_a_careless_answer_is_one_of_the_choices_and_right_less_often() -> None:
    rows = questions.question_rows("train", 800, seed=2)
    for tag, options in questions.ANSWERS.items():
        mine = [row for row in rows if row["tag"] == tag]
        said = [completions.answer(row, hurried=True).removeprefix("answer: ") for row in mine]
        for row, text in zip(mine, said, strict=True):
            assert text in row.get("choices", options), (row["question"], text)
        right = [t == completions.truth(row) for row, t in zip(mine, said, strict=True)]
        assert sum(right) / len(right) < 0.7, tag


def test_shares_of_descriptions_and_careless_answers_are_kept() -> None:
    found = completions.pairs(800, seed=6, descriptions=0.5, careless=0.4)
    right = completions.pairs(800, seed=6)
    described = [tag == "description" for tag in found["tag"]]
    assert 0.44 < sum(described) / 800 < 0.56
    rest = [n for n in range(800) if not described[n]]
    hurried = [n for n in rest if found["completion"][n] != right["completion"][n]]
    assert 0.34 < len(hurried) / len(rest) < 0.46
    assert all(found["completion"][n].startswith("answer: ") for n in hurried)
    last = [(found["completion"][n][-1], right["completion"][n][-1]) for n in hurried]
    assert 0.5 < sum(said != true for said, true in last) / len(last) < 0.9  # some are right
    assert all(found["prompt"][n] == right["prompt"][n] for n in rest)
    worded = completions.pairs(800, seed=6, descriptions=0.5, careless=0.4, letters=0.25)
    choices = [n for n in rest if found["form"][n] == "choice"]
    kept = [worded["completion"][n] == found["completion"][n] for n in choices]
    assert 0.17 < sum(kept) / len(choices) < 0.33
    with pytest.raises(ValueError, match="careless is 101; .* from 0 to 100 per cent"):
        write.main(["out=unused", "careless=101"])


def test_every_answer_is_one_token_and_the_system_text_another() -> None:
    tokenizer = load_tokenizer(FOLDER / "tokenizer_questions")
    answers = [word for words in questions.ANSWERS.values() for word in words]
    for text in (*answers, *"ABCD", SYSTEM):
        assert len(tokenizer(text)["input_ids"]) == 1, text
    for split in SPLITS:
        for row in rows_of(split):
            tokens = tokenizer.tokenize(row["question"])
            words = re.findall(r"[a-z]+|[^a-z\s]|\n", row["question"])
            assert len(tokens) <= len(words) + row["question"].count(". ")
