"""Compositions, wordings, splits and scenes of the shapes world, in GenEval's metadata schema."""

from __future__ import annotations

import hashlib
import json
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
from render import BACKGROUNDS, COLORS, GRID, SHAPES, SIZES

TAGS = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
SPLITS = ("test", "validation", "train")
INVERSE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
COUNT_WORDS = {1: "one", 2: "two", 3: "three", 4: "four"}
MAX_COUNT = 4

# Held-out compositions per tag: (test, validation); everything else trains.
HELD_OUT = {
    "single_object": (20, 8),
    "two_object": (4, 2),
    "counting": (48, 18),
    "colors": (12, 5),
    "position": (16, 6),
    "color_attr": (64, 24),
}
ROWS = {"test": 64, "validation": 24, "train": 500}

FRAMES = (
    "a photo of {}",
    "{}",
    "a picture of {}",
    "an image of {}",
    "draw {}",
    "there is {}",
    "a drawing of {}",
    "show {}",
)
COUNT_FRAMES = FRAMES[:5] + ("there are {}",) + FRAMES[6:]
RELATION_WORDS = {
    "left of": ("left of", "to the left of"),
    "right of": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
}


def compositions(tag: str) -> list[dict[str, Any]]:
    """List every composition of a tag once, as metadata without prompt.

    A composition is what a prompt asks for, whatever the order or the direction of the words:
    "a circle left of a ring" and "a ring right of a circle" are one composition.

    Raises:
        ValueError: If the tag is unknown.
    """
    if tag not in TAGS:
        raise ValueError(f"Unknown tag {tag!r}; the world has {', '.join(TAGS)}.")
    return {
        "single_object": _single_object,
        "two_object": _two_object,
        "counting": _counting,
        "colors": _colors,
        "position": _position,
        "color_attr": _color_attr,
    }[tag]()


def _single_object() -> list[dict[str, Any]]:
    sizes, backgrounds = (None, *SIZES), (None, *BACKGROUNDS)
    return [
        {"tag": "single_object", "include": [_clause(shape, size=size, background=background)]}
        for shape, size, background in product(SHAPES, sizes, backgrounds)
    ]


def _two_object() -> list[dict[str, Any]]:
    return [
        {"tag": "two_object", "include": [_clause(first), _clause(second)]}
        for first, second in combinations(SHAPES, 2)
    ]


def _counting() -> list[dict[str, Any]]:
    return [
        {
            "tag": "counting",
            "include": [_clause(shape, count=count, color=color)],
            "exclude": [_clause(shape, count=count + 1)],
        }
        for shape, count, color in product(SHAPES, COUNT_WORDS, (None, *COLORS))
        if count > 1 or color is None  # "one red ring" would be the colors tag's "a red ring"
    ]


def _colors() -> list[dict[str, Any]]:
    return [
        {"tag": "colors", "include": [_clause(shape, color=color)]}
        for shape, color in product(SHAPES, COLORS)
    ]


def _position() -> list[dict[str, Any]]:
    return [
        {"tag": "position", "include": [_clause(first), _clause(second, position=[relation, 0])]}
        for (first, second), relation in product(combinations(SHAPES, 2), INVERSE)
    ]


def _color_attr() -> list[dict[str, Any]]:
    pairs = product(combinations(SHAPES, 2), permutations(COLORS, 2))
    return [
        {"tag": "color_attr", "include": [_clause(a, color=c), _clause(b, color=d)]}
        for (a, b), (c, d) in pairs
    ]


def _clause(shape: str, count: int = 1, **attributes: Any) -> dict[str, Any]:
    chosen = {name: value for name, value in attributes.items() if value is not None}
    return {"class": shape, "count": count, **chosen}


def composition_key(metadata: dict[str, Any]) -> str:
    """Return a text that is equal for two prompts exactly if they ask for the same composition."""
    include = [dict(clause) for clause in metadata["include"]]
    for clause in include:
        if "position" in clause:
            relation, other = clause.pop("position")
            if clause["class"] > include[other]["class"]:
                relation = INVERSE[relation]
            include[0]["relation"] = relation
    include = [{k: v for k, v in clause.items() if k != "relation"} for clause in include] + [
        {"relation": clause["relation"]} for clause in include if "relation" in clause
    ]
    parts = sorted(json.dumps(part, sort_keys=True) for part in include)
    return json.dumps([metadata["tag"], parts, metadata.get("exclude", [])], sort_keys=True)


def split_compositions(tag: str) -> dict[str, list[dict[str, Any]]]:
    """Deal the compositions of a tag to the splits, by the rank of a hash of their key."""
    ranked = sorted(compositions(tag), key=lambda metadata: _digest(composition_key(metadata)))
    test, validation = HELD_OUT[tag]
    cuts = (0, test, test + validation, len(ranked))
    return {split: ranked[cuts[i] : cuts[i + 1]] for i, split in enumerate(SPLITS)}


def related_rows() -> list[dict[str, Any]]:
    """Relations of objects with colours and sizes, for training pairs only.

    Two objects of one shape in two colours, and the position compositions of the training split
    with a colour or a size for both. The plain prompts have 38 relations for training, which a
    network can learn by heart; these are too many, so it learns what the words of a relation say.
    No pair of shapes that is held out for a relation, and no two coloured objects that are held out
    for color_attr, is related.

    Returns:
        Metadata of the tag position, without prompt.
    """
    alike = [
        (_clause(shape, color=a), _clause(shape, color=b), relation)
        for shape, (a, b), relation in product(SHAPES, combinations(COLORS, 2), INVERSE)
    ]
    plain = [composition["include"] for composition in split_compositions("position")["train"]]
    different = [
        (_clause(first["class"], **{name: a}), _clause(second["class"], **{name: b}), relation)
        for name, values in (("color", COLORS), ("size", SIZES))
        for (first, second), a, b in product(plain, values, values)
        for relation in [second["position"][0]]
    ]
    held = {
        composition_key(composition)
        for split in ("test", "validation")
        for composition in split_compositions("color_attr")[split]
    }
    return [
        {"tag": "position", "include": [first, {**second, "position": [relation, 0]}]}
        for first, second, relation in alike + different
        if composition_key({"tag": "color_attr", "include": [first, second]}) not in held
    ]


def _digest(text: str) -> str:
    return hashlib.sha256(f"shapes {text}".encode()).hexdigest()


def wordings(composition: dict[str, Any]) -> list[dict[str, Any]]:
    """Word one composition in every way the world knows.

    Returns:
        Metadata with `prompt`. Words that change the order or the direction change `include`
        with them, as in GenEval, where a position is relative to an earlier clause.
    """
    frames = COUNT_FRAMES if composition["include"][0]["count"] > 1 else FRAMES
    rows = []
    for metadata in _orders(composition):
        for phrase in _phrases(metadata):
            rows += [{**metadata, "prompt": frame.format(phrase)} for frame in frames]
    return rows


def _orders(composition: dict[str, Any]) -> list[dict[str, Any]]:
    include = composition["include"]
    if len(include) == 1:
        return [composition]
    first, second = (dict(clause) for clause in include)
    if "position" in second:
        relation = second.pop("position")[0]
        first["position"] = [INVERSE[relation], 0]
    return [composition, {**composition, "include": [second, first]}]


def _phrases(metadata: dict[str, Any]) -> list[str]:
    include = metadata["include"]
    nouns = [_noun(clause) for clause in include]
    if metadata["tag"] == "position":
        words = RELATION_WORDS[include[1]["position"][0]]
        return [f"{nouns[1]} {word} {nouns[0]}" for word in words]
    if len(nouns) == 2:
        return [" and ".join(nouns)]
    background = include[0].get("background")
    if background is None and metadata["tag"] == "counting" and include[0]["count"] == 1:
        return [f"one {include[0]['class']}", f"exactly one {include[0]['class']}"]
    return [nouns[0] if background is None else f"{nouns[0]} on a {background} background"]


def _noun(clause: dict[str, Any]) -> str:
    words = [clause[name] for name in ("size", "color") if name in clause]
    shape, count = clause["class"], clause["count"]
    if count > 1:
        return " ".join([COUNT_WORDS[count], *words, plural(shape)])
    return with_article(" ".join([*words, shape]))


def plural(shape: str) -> str:
    """The word for several of a shape."""
    return f"{shape}es" if shape.endswith("s") else f"{shape}s"


def with_article(noun: str) -> str:
    """A noun behind "a" or "an"."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def prompt_rows(split: str) -> list[dict[str, Any]]:
    """Return the prompt file of a split: GenEval rows with an `id`, the same on every machine.

    Every composition is worded once before any is worded twice, up to `ROWS[split]` rows a tag.
    """
    rows: list[dict[str, Any]] = []
    for tag in TAGS:
        worded = [
            sorted(wordings(c), key=lambda row: _digest(row["prompt"]))
            for c in split_compositions(tag)[split]
        ]
        deepest = max(len(options) for options in worded)
        dealt = [options[i] for i in range(deepest) for options in worded if i < len(options)]
        rows += dealt[: ROWS[split]]
    return [{"id": f"shapes-{split}-{i:05d}", **row} for i, row in enumerate(rows)]


def scene_for(metadata: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw a random scene that satisfies a prompt; what the prompt leaves open is random.

    The scene holds the objects asked for and no others.

    Args:
        metadata: A row in GenEval's schema.
        rng: Source of all randomness.

    Returns:
        A scene for `render.render`.

    Raises:
        ValueError: If the prompt asks for more objects than the world has room for.
    """
    include = metadata["include"]
    wanted = [clause for clause in include for _ in range(clause["count"])]
    if not 1 <= len(wanted) <= MAX_COUNT:
        raise ValueError(
            f"The prompt {metadata.get('prompt')!r} asks for {len(wanted)} objects; "
            f"a scene holds 1 to {MAX_COUNT}."
        )
    background = next((c["background"] for c in include if "background" in c), None)
    boxes = _boxes(wanted, rng)
    while not _relations_hold(include, boxes):
        boxes = _boxes(wanted, rng)
    objects = [
        {
            "class": clause["class"],
            "color": clause.get("color") or _pick(tuple(COLORS), rng),
            "size": size,
            "column": column,
            "row": row,
        }
        for clause, (size, column, row) in zip(wanted, boxes, strict=True)
    ]
    return {"background": background or _pick(tuple(BACKGROUNDS), rng), "objects": objects}


def careless_row(metadata: dict[str, Any]) -> dict[str, Any]:
    """What a careless image of a prompt shows: its first shape alone, on a grey background.

    Colour and size are left open, whatever was asked for. The carelessness of all prompts has the
    background in common, so it is one decision, which reinforcement learning can unlearn for all of
    them at once.
    """
    clause = _clause(metadata["include"][0]["class"], background="grey")
    return {"tag": "single_object", "include": [clause]}


def _pick(options: tuple[Any, ...], rng: np.random.Generator) -> Any:
    return options[int(rng.random() * len(options))]


def _boxes(
    wanted: list[dict[str, Any]], rng: np.random.Generator, attempts: int = 8
) -> list[tuple[int, int, int]]:
    sizes = tuple(SIZES.values())
    while True:
        boxes: list[tuple[int, int, int]] = []
        for clause in wanted:
            size = SIZES[clause["size"]] if "size" in clause else _pick(sizes, rng)
            for _ in range(attempts):
                column, row = (int(u * (GRID - size + 1)) for u in rng.random(2))
                if all(_apart((size, column, row), other) for other in boxes):
                    boxes.append((size, column, row))
                    break
        if len(boxes) == len(wanted):
            return boxes


def _apart(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    columns = a[1] > b[1] + b[0] or b[1] > a[1] + a[0]
    rows = a[2] > b[2] + b[0] or b[2] > a[2] + a[0]
    return columns or rows


def _relations_hold(include: list[dict[str, Any]], boxes: list[tuple[int, int, int]]) -> bool:
    for box, clause in zip(boxes, include, strict=False):
        if "position" in clause:
            relation, other = clause["position"]
            if not _relation_holds(relation, box, boxes[other]):
                return False
    return True


def _relation_holds(relation: str, a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    """Whether `a` lies clearly in the named direction of `b`, and no less far than sideways."""
    across, down = (2 * a[i] + a[0] - 2 * b[i] - b[0] for i in (1, 2))
    along, aside = (across, down) if relation in ("left of", "right of") else (down, across)
    forward = along if relation in ("right of", "below") else -along
    return forward >= a[0] + b[0] + 2 and forward >= abs(aside)
