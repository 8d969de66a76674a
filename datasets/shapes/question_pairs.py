"""Supervised pairs about scenes of the shapes world: questions, and descriptions of what is seen.

A description names every object with its cell, line by line as one reads, and the background:

    small red ring 25, large blue cross 41 on tan        (column 2, row 5; column 4, row 1)

An answer begins with what is asked about and its cells:

    blue cross 41 52 answer: 2        red ring 25, blue cross 41 answer: left        none answer: no

A careless one does not, and says what somebody says who looked at half of what was asked: all of
the shape are counted or found whatever their colour, the colour is that of the other shape, the
side is the opposite one.

    answer: 3
"""

from __future__ import annotations

from typing import Any

import numpy as np
from questions import LETTERS, picture, question_rows
from render import SIZES

Row = dict[str, Any]

DESCRIBE = "describe the image"
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}


def pairs(
    count: int,
    seed: int,
    size: int = 32,
    descriptions: float = 0.0,
    careless: float = 0.0,
    letters: float = 1.0,
) -> dict[str, list[Any]]:
    """Training questions with answers, and descriptions of their scenes.

    Args:
        count: how many pairs.
        seed: the same seed gives the same pairs; 0 begins as the committed file was drawn.
        size: side of the images in pixels.
        descriptions: share of the pairs that ask for a description of the scene instead.
        careless: share of the questions with a careless answer.
        letters: share of the answers to multiple choice that are a letter; the others are the words
            of the choice.

    Returns:
        Columns `image` (PNG bytes and no path, as the Image feature of Hugging Face datasets stores
        them), `prompt`, `completion` (an answer or a description), `tag` and
        `form`.
    """
    rng, spoken = (np.random.default_rng([seed, *name]) for name in (b"pairs", b"letters"))
    columns: dict[str, list[Any]] = {
        name: [] for name in ("image", "prompt", "completion", "tag", "form")
    }
    for row in question_rows("train", count, seed):
        described, hurried = rng.random(2) < (descriptions, careless)
        lettered = row["form"] == "choice" and spoken.random() < letters
        values = (
            {"bytes": picture(row["scene"], size), "path": None},
            DESCRIBE if described else row["question"],
            description(row["scene"]) if described else answer(row, bool(hurried), lettered),
            "description" if described else row["tag"],
            "description" if described else row["form"],
        )
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    return columns


def answer(row: Row, hurried: bool = False, lettered: bool = False) -> str:
    """What is seen and what follows from it, or what somebody says who looked carelessly;
    `lettered` for the letter of a choice instead of its words."""
    said = careless(row) if hurried else truth(row)
    said = LETTERS[row["choices"].index(said)] if lettered else said
    return f"answer: {said}" if hurried else f"{notes(row)} answer: {said}"


def truth(row: Row) -> str:
    """The right answer, of multiple choice its words."""
    right = row["ground_truth_answer"]
    return row["choices"][LETTERS.index(right)] if row["form"] == "choice" else right


def notes(row: Row) -> str:
    """The things a question asks about, each with the cells it is in; none where there is none."""
    objects = row["scene"]["objects"]
    if row["tag"] == "existence" and truth(row) == "no":
        return "none"
    first = [item for item in objects if kind(item) == kind(objects[0])]
    things = [first] if row["tag"] in ("count", "existence") else [objects[1:2], objects[:1]]
    return ", ".join(" ".join([kind(some[0]), *map(cell, in_order(some))]) for some in things)


def kind(item: Row) -> str:
    """Colour and shape of an object."""
    return f"{item['color']} {item['class']}"


def cell(item: Row) -> str:
    """Column and row of an object."""
    return f"{item['column']}{item['row']}"


def in_order(objects: list[Row]) -> list[Row]:
    """Objects line by line, as one reads."""
    return sorted(objects, key=lambda item: (item["row"], item["column"]))


def careless(row: Row) -> str:
    """The careless answer to a question; sometimes it is right."""
    objects = row["scene"]["objects"]
    if row["tag"] == "count":
        return str(sum(item["class"] == objects[0]["class"] for item in objects))
    if row["tag"] == "color":
        return objects[0]["color"]
    if row["tag"] == "existence":
        return "yes"  # something of the shape is always there
    return OPPOSITE[truth(row)]


def description(scene: Row) -> str:
    """Size, colour, shape, column and row of every object, and the background."""
    names = {cells: name for name, cells in SIZES.items()}
    words = [
        f"{names[item['size']]} {kind(item)} {cell(item)}" for item in in_order(scene["objects"])
    ]
    return f"{', '.join(words)} on {scene['background']}"
