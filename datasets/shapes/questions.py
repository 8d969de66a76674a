"""Questions about scenes of the shapes world, with splits, balanced answers and no second reading.

A composition is what a question asks about, without its answer, so the words of a question do not
give the answer away: every composition occurs with every answer. It belongs to the split that the
shapes world deals it to (`prompts.split_compositions`).

| tag | asks | composition | answers |
|---|---|---|---|
| count | how many of a shape and colour | `colors` | 1 to 4 |
| color | the colour of a shape beside another | `position` | 8 colours |
| relation | on which side of another a shape is, both with colours | `color_attr` | 4 sides |
| existence | whether there is a shape of a colour | `colors` | yes, no |
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

import numpy as np
from prompts import (
    RELATION_WORDS,
    plural,
    scene_for,
    split_compositions,
    with_article,
)
from render import COLORS, SHAPES, render

SIDES = {"left": "left of", "right": "right of", "above": "above", "below": "below"}
ANSWERS: dict[str, tuple[str, ...]] = {
    "count": ("1", "2", "3", "4"),
    "color": tuple(COLORS),
    "relation": tuple(SIDES),
    "existence": ("yes", "no"),
}
FORMS = ("choice", "short")
LETTERS = "ABCD"
ROWS = {"train": 2000, "validation": 128, "test": 384}
MAX_OBJECTS = 4

Row = dict[str, Any]


def question_rows(split: str, count: int, seed: int = 0) -> list[Row]:
    """Questions of a split, the same on every machine, as many of every tag and form.

    Args:
        split: train, validation or test.
        count: how many, over all tags and forms.
        seed: another one gives other questions and scenes.

    Returns:
        Rows with `id`, `tag`, `form`, `question`, `ground_truth_answer`, `choices` (of multiple
        choice) and `scene`. Answers are even within a tag and form, and so are letters.
    """
    rng = np.random.default_rng([seed, *split.encode()])
    kinds = list(product(ANSWERS, FORMS))
    rows: list[Row] = []
    for n, (tag, form) in enumerate(kinds):
        share = count // len(kinds) + (n < count % len(kinds))
        drawn = list(islice(_questions(tag, form, split, rng), share))
        rows += [drawn[place] for place in rng.permutation(share)]
    return [{"id": f"shapes-question-{split}-{i:05d}", **row} for i, row in enumerate(rows)]


def _questions(tag: str, form: str, split: str, rng: np.random.Generator) -> Iterator[Row]:
    """Endless questions; answers in turn, letters in turn within each answer."""
    compositions = split_compositions(_WORLD[tag])[split]
    answers = ANSWERS[tag]
    number = 0
    while True:
        composition = compositions[int(rng.random() * len(compositions))]
        answer, turn = answers[number % len(answers)], number // len(answers)
        number += 1
        question, scene = _ASKED[tag](composition["include"], answer, rng)
        row = {"tag": tag, "form": form, "question": question, "ground_truth_answer": answer}
        if form == "choice":
            shown = {item["color"] for item in scene["objects"]}
            choices = _choices(answers, answer, turn, shown, rng)
            lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, choices, strict=False)]
            row["question"] = "\n".join([question, *lines])
            row["ground_truth_answer"] = LETTERS[choices.index(answer)]
            row["choices"] = choices
        yield {**row, "scene": scene}


def _choices(
    answers: tuple[str, ...], answer: str, turn: int, shown: set[str], rng: np.random.Generator
) -> list[str]:
    """Up to four answers in random order, the right one at the place whose turn it is.

    Colours that the scene shows come first, so that seeing any colour is not enough.
    """
    others = [answers[i] for i in rng.permutation(len(answers)) if answers[i] != answer]
    others = sorted(others, key=lambda text: text not in shown)[: len(LETTERS) - 1]
    picked = [others[i] for i in rng.permutation(len(others))]
    picked.insert(turn % (len(picked) + 1), answer)
    return picked


def _count(include: list[Row], answer: str, rng: np.random.Generator) -> tuple[str, Row]:
    shape, color = include[0]["class"], include[0]["color"]
    wanted = int(answer)
    asked = {"class": shape, "count": wanted, "color": color}
    number = int(rng.random() * (MAX_OBJECTS - wanted + 1))
    scene = _scene([asked, *_decoys(shape, color, number, rng)], rng)
    frame = _pick(("how many {} are there?", "how many {} does the image show?"), rng)
    return frame.format(f"{color} {plural(shape)}"), scene


def _existence(include: list[Row], answer: str, rng: np.random.Generator) -> tuple[str, Row]:
    shape, color = include[0]["class"], include[0]["color"]
    number = 2 + int(rng.random() * (MAX_OBJECTS - 1))
    there = answer == "yes"
    clauses = _decoys(shape, color, number - there, rng)
    if there:
        clauses.insert(0, {"class": shape, "count": 1, "color": color})
    frame = _pick(("is there {}?", "does the image show {}?"), rng)
    return frame.format(with_article(f"{color} {shape}")), _scene(clauses, rng)


def _color(include: list[Row], answer: str, rng: np.random.Generator) -> tuple[str, Row]:
    first, second = (dict(clause) for clause in include)
    second["color"] = answer
    first["color"] = _pick([color for color in COLORS if color != answer], rng)
    others = [shape for shape in SHAPES if shape not in (first["class"], second["class"])]
    number = int(rng.random() * (MAX_OBJECTS - 1))
    decoys = [
        {"class": _pick(others, rng), "count": 1, "color": _pick(tuple(COLORS), rng)}
        for _ in range(number)
    ]
    words = _pick(RELATION_WORDS[second["position"][0]], rng)
    text = f"what color is the {second['class']} {words} the {first['class']}?"
    return text, _scene([first, second, *decoys], rng)


def _relation(include: list[Row], answer: str, rng: np.random.Generator) -> tuple[str, Row]:
    first, second = (dict(include[i]) for i in rng.permutation(2))
    second["position"] = [SIDES[answer], 0]
    names = [f"{clause['color']} {clause['class']}" for clause in (first, second)]
    text = f"on which side of the {names[0]} is the {names[1]}: left, right, above or below?"
    scene = _scene([first, second], rng)
    while not _is_clear(*scene["objects"]):
        scene = _scene([first, second], rng)
    return text, scene


def _is_clear(a: Row, b: Row) -> bool:
    """Whether two objects lie twice as far apart in one direction as in the other: on a diagonal
    two sides would be right."""
    across, down = (abs(2 * (a[k] - b[k]) + a["size"] - b["size"]) for k in ("column", "row"))
    return max(across, down) >= 2 * min(across, down)


_ASKED = {"count": _count, "color": _color, "relation": _relation, "existence": _existence}
_WORLD = {"count": "colors", "color": "position", "relation": "color_attr", "existence": "colors"}


def _decoys(shape: str, color: str, number: int, rng: np.random.Generator) -> list[Row]:
    """Objects that share the shape or the colour asked for, in turn, but not both."""
    colors = [name for name in COLORS if name != color]
    shapes = [name for name in SHAPES if name != shape]
    first = int(rng.random() * 2)
    return [
        {"class": shape, "count": 1, "color": _pick(colors, rng)}
        if (first + n) % 2
        else {"class": _pick(shapes, rng), "count": 1, "color": color}
        for n in range(number)
    ]


def _scene(clauses: list[Row], rng: np.random.Generator) -> Row:
    return scene_for({"include": clauses}, rng)


def _pick(options: Any, rng: np.random.Generator) -> Any:
    return options[int(rng.random() * len(options))]


def picture(scene: Row, size: int = 32) -> bytes:
    """The rendered scene as a PNG of a few colours."""
    buffer = io.BytesIO()
    render(scene, size).quantize(16).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def data_url(png: bytes) -> str:
    """A PNG as text."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
