"""Edits of scenes of the shapes world: a scene, an instruction, and the scene it asks for.

| tag | instruction | held out are |
|---|---|---|
| recolor | make the (red) circle blue | shape and new colour |
| replace | turn the (red) circle into a ring | both shapes |
| remove | remove the (red) circle | shape and colour |
| add | add a blue ring | shape and colour |
| background | make the background teal | old and new background |

The shapes of a scene differ, so the shape says which object is meant; half of the instructions name
its colour too. What the instruction does not name stays, pixel for pixel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np
from prompts import scene_for, with_article
from render import BACKGROUNDS, COLORS, SHAPES

Row = dict[str, Any]

TAGS = ("recolor", "replace", "remove", "add", "background")
ROWS = {"train": 1000, "validation": 80, "test": 240}
MAX_OBJECTS = 3
HELD_OUT = {"test": 0.25, "validation": 0.1}
FRAMES = {
    "recolor": ("make {noun} {new}", "change the color of {noun} to {new}", "paint {noun} {new}"),
    "replace": ("turn {noun} into {new}", "replace {noun} with {new}", "make {noun} {new}"),
    "remove": ("remove {noun}", "take {noun} away", "erase {noun}"),
    "add": ("add {new}", "put {new} in the image", "draw {new} as well"),
    "background": ("make the background {new}", "change the background to {new}"),
}


def compositions(tag: str) -> list[tuple[str, str]]:
    """What an edit changes and into what, every pair once."""
    return {
        "recolor": list(product(SHAPES, COLORS)),
        "replace": list(permutations(SHAPES, 2)),
        "remove": list(product(SHAPES, COLORS)),
        "add": list(product(SHAPES, COLORS)),
        "background": list(permutations(BACKGROUNDS, 2)),
    }[tag]


def split_compositions(tag: str) -> dict[str, list[tuple[str, str]]]:
    """Deal the compositions of a tag to the splits, by the rank of a hash."""
    ranked = sorted(
        compositions(tag),
        key=lambda pair: hashlib.sha256(f"shapes edit {tag} {pair}".encode()).hexdigest(),
    )
    test, validation = (round(HELD_OUT[split] * len(ranked)) for split in ("test", "validation"))
    cut = test + validation
    return {"test": ranked[:test], "validation": ranked[test:cut], "train": ranked[cut:]}


def edit_rows(split: str, count: int, seed: int = 0) -> list[Row]:
    """Edits of a split, the same on every machine, as many of every tag.

    Args:
        split: train, validation or test.
        count: how many, over all tags.
        seed: another one gives other edits and scenes.

    Returns:
        Rows with `id`, `tag`, `prompt` (the instruction), `include` and `exclude` (GenEval's, of
        the scene that is asked for), `edited` (the shape that the edit names, or background), and
        the scenes `source` and `target`.
    """
    rng = np.random.default_rng([seed, *f"edit {split}".encode()])
    drawn = {tag: _edits(tag, split_compositions(tag)[split], rng) for tag in TAGS}
    rows = [next(drawn[TAGS[n % len(TAGS)]]) for n in range(count)]
    return [{"id": f"shapes-edit-{split}-{n:05d}", **row} for n, row in enumerate(rows)]


def _edits(tag: str, pairs: list[tuple[str, str]], rng: np.random.Generator) -> Iterator[Row]:
    while True:
        yield _edit(tag, *pairs[int(rng.random() * len(pairs))], rng)


def _edit(tag: str, first: str, second: str, rng: np.random.Generator) -> Row:
    """One edit of a random scene; `first` and `second` are its composition."""
    shape = None if tag == "background" else first
    taken = {shape, second if tag == "replace" else None}
    others = [name for name in SHAPES if name not in taken]
    number = int(rng.random() * MAX_OBJECTS) + (shape is None)
    if shape is not None and tag in ("add", "remove"):
        number = max(1, number)  # never an empty scene
    shapes = [others[i] for i in rng.permutation(len(others))[: min(number, MAX_OBJECTS)]]
    include = [{"class": name, "count": 1} for name in shapes]
    if shape is not None:
        include.append({"class": shape, "count": 1})
    if tag in ("add", "remove"):
        include[-1]["color"] = second
    if tag == "background":
        include[0]["background"] = first
    full = scene_for({"include": include}, rng)
    objects = full["objects"]
    named = objects[-1] if shape is not None else None
    if tag == "recolor" and named is not None and named["color"] == second:
        named["color"] = [c for c in COLORS if c != second][int(rng.random() * (len(COLORS) - 1))]
    source, target = full, full
    if tag == "recolor":
        target = {**full, "objects": [*objects[:-1], {**objects[-1], "color": second}]}
    elif tag == "replace":
        target = {**full, "objects": [*objects[:-1], {**objects[-1], "class": second}]}
    elif tag == "remove":
        target = {**full, "objects": objects[:-1]}
    elif tag == "add":
        source = {**full, "objects": objects[:-1]}
    else:
        target = {**full, "background": second}
    return {
        "tag": tag,
        "prompt": _instruction(tag, named, second, rng),
        **_metadata(tag, target, shape),
        "edited": shape or "background",
        "source": source,
        "target": target,
    }


def _instruction(tag: str, named: Row | None, second: str, rng: np.random.Generator) -> str:
    """Words of an edit; of an object that is there, its shape, or its colour and shape."""
    frames = FRAMES[tag]
    frame, colored = frames[int(rng.random() * len(frames))], rng.random() < 0.5
    if named is None:
        return frame.format(new=second)
    noun = f"the {named['color']} {named['class']}" if colored else f"the {named['class']}"
    new = {
        "recolor": second,
        "replace": with_article(second),
        "add": with_article(f"{named['color']} {named['class']}"),
    }.get(tag, "")
    return frame.format(noun=noun, new=new)


def _metadata(tag: str, target: Row, shape: str | None) -> Row:
    """GenEval's `include` and `exclude` for the scene that an edit asks for."""
    include = [
        {"class": item["class"], "count": 1, "color": item["color"]} for item in target["objects"]
    ]
    if tag == "background":
        include[0]["background"] = target["background"]
    gone = [{"class": shape, "count": 1}] if tag in ("remove", "replace") else []
    return {"include": include, **({"exclude": gone} if gone else {})}
