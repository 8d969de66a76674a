"""Write training prompts in GenEval's metadata schema, disjoint from GenEval's evaluation prompts.

    python datasets/geneval/generate.py exclude=evaluation_metadata.jsonl out=datasets/geneval

`exclude` is the prompt file of GenEval (arXiv 2310.11513), in whose format this file writes. Rows
are taken in the order of a SHA-256 hash, so equal arguments give equal files on every machine.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

logger = logging.getLogger("geneval")

CLASSES = (
    "person",
    "bicycle",
    "car",
    "motorcycle",
    "airplane",
    "bus",
    "train",
    "truck",
    "boat",
    "traffic light",
    "fire hydrant",
    "stop sign",
    "parking meter",
    "bench",
    "bird",
    "cat",
    "dog",
    "horse",
    "sheep",
    "cow",
    "elephant",
    "bear",
    "zebra",
    "giraffe",
    "backpack",
    "umbrella",
    "handbag",
    "tie",
    "suitcase",
    "frisbee",
    "skis",
    "snowboard",
    "sports ball",
    "kite",
    "baseball bat",
    "baseball glove",
    "skateboard",
    "surfboard",
    "tennis racket",
    "bottle",
    "wine glass",
    "cup",
    "fork",
    "knife",
    "spoon",
    "bowl",
    "banana",
    "apple",
    "sandwich",
    "orange",
    "broccoli",
    "carrot",
    "hot dog",
    "pizza",
    "donut",
    "cake",
    "chair",
    "couch",
    "potted plant",
    "bed",
    "dining table",
    "toilet",
    "tv",
    "laptop",
    "computer mouse",
    "tv remote",
    "computer keyboard",
    "cell phone",
    "microwave",
    "oven",
    "toaster",
    "sink",
    "refrigerator",
    "book",
    "clock",
    "vase",
    "scissors",
    "teddy bear",
    "hair drier",
    "toothbrush",
)
"""The 80 classes of COCO, under the names GenEval uses."""

COLORS = (
    "red",
    "orange",
    "yellow",
    "green",
    "blue",
    "purple",
    "pink",
    "brown",
    "black",
    "white",
)
UNCOLORED = ("person",)
UNCOUNTED = ("scissors", "skis")  # one pair and several look alike in words
INVERSE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
COUNT_WORDS = {2: "two", 3: "three", 4: "four"}

# (train, validation) rows of a tag; single_object and counting have few compositions.
ROWS = {
    "single_object": (64, 16),
    "two_object": (240, 16),
    "counting": (136, 16),
    "colors": (240, 16),
    "position": (280, 16),
    "color_attr": (240, 16),
}
SPLITS = ("train", "validation")


def candidates(tag: str) -> Iterator[list[dict[str, Any]]]:
    """Every `include` list of a tag; of `color_attr` one pair of colours per pair of classes.

    Raises:
        ValueError: an unknown tag.
    """
    colored = [c for c in CLASSES if c not in UNCOLORED]
    pairs = list(permutations(CLASSES, 2))
    if tag == "single_object":
        yield from ([_clause(c)] for c in CLASSES)
    elif tag == "two_object":
        yield from ([_clause(a), _clause(b)] for a, b in pairs)
    elif tag == "counting":
        counted = [c for c in CLASSES if c not in UNCOUNTED]
        yield from ([_clause(c, n)] for c, n in product(counted, COUNT_WORDS))
    elif tag == "colors":
        yield from ([_clause(c, color=k)] for c, k in product(colored, COLORS) if c != k)
    elif tag == "position":
        yield from (
            [_clause(a), _clause(b, position=[relation, 0])]
            for (a, b), relation in product(pairs, INVERSE)
        )
    elif tag == "color_attr":
        for a, b in combinations(colored, 2):
            k, m = _colors_of(a, b)
            yield [_clause(a, color=k), _clause(b, color=m)]
    else:
        raise ValueError(f"Unknown tag {tag!r}; GenEval has {', '.join(ROWS)}.")


def row_of(tag: str, include: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of GenEval's schema with its prompt."""
    row: dict[str, Any] = {"tag": tag, "include": include}
    if tag == "counting":
        row["exclude"] = [{"class": include[0]["class"], "count": include[0]["count"] + 1}]
    return {**row, "prompt": prompt_of(tag, include)}


def prompt_of(tag: str, include: list[dict[str, Any]]) -> str:
    """The wording of GenEval, except for `single_object`.

    GenEval evaluates on all 80 prompts "a photo of a <class>", so ours name another medium.
    """
    names = [_noun_phrase(clause) for clause in include]
    if tag == "single_object":
        return f"a picture of {names[0]}"
    if tag == "position":
        return f"a photo of {names[1]} {include[1]['position'][0]} {names[0]}"
    return f"a photo of {' and '.join(names)}"


def composition(row: dict[str, Any]) -> str:
    """What a row asks for, whatever its order: "a cat left of a dog" is "a dog right of a cat"."""
    clauses = [dict(clause) for clause in row["include"]]
    if row["tag"] == "position":
        anchor, placed = clauses[0]["class"], clauses[1]["class"]
        relation = clauses[1]["position"][0]
        sides = [(placed, relation, anchor), (anchor, INVERSE[relation], placed)]
        return json.dumps([row["tag"], *min(sides)])
    return json.dumps([row["tag"], *sorted(json.dumps(c, sort_keys=True) for c in clauses)])


def generate(excluded: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of both splits.

    Args:
        excluded: rows whose prompts, and whose compositions except for `single_object`, must not
            be produced.

    Raises:
        ValueError: too few candidates are left in a tag.
    """
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    prompts = {row["prompt"] for row in excluded}
    for tag, sizes in ROWS.items():
        seen = {composition(row) for row in excluded} if tag != "single_object" else set()
        fresh = []
        for row in sorted((row_of(tag, c) for c in candidates(tag)), key=_rank):
            key = composition(row)
            if key not in seen and row["prompt"] not in prompts:
                seen.add(key)
                fresh.append(row)
        if len(fresh) < sum(sizes):
            raise ValueError(f"{tag} has {len(fresh)} prompts left and {sum(sizes)} are wanted.")
        splits["train"] += fresh[: sizes[0]]
        splits["validation"] += fresh[sizes[0] : sum(sizes)]
    return {
        split: [{"id": f"geneval-{split}-{n:04d}", **row} for n, row in enumerate(rows)]
        for split, rows in splits.items()
    }


def _clause(name: str, count: int = 1, **extra: Any) -> dict[str, Any]:
    return {"class": name, "count": count, **extra}


def _colors_of(a: str, b: str) -> tuple[str, str]:
    """Two different colours for two classes, neither its own name, by the hash of the classes."""
    allowed = [(k, m) for k, m in permutations(COLORS, 2) if k != a and m != b]
    place = int.from_bytes(hashlib.sha256(f"{a}, {b}".encode()).digest()[:8], "big")
    return allowed[place % len(allowed)]


def _noun_phrase(clause: dict[str, Any]) -> str:
    """ "a red cup" or "three cups", with GenEval's plural: -es after s, otherwise -s."""
    if clause["count"] > 1:
        plural = "es" if clause["class"].endswith("s") else "s"
        return f"{COUNT_WORDS[clause['count']]} {clause['class']}{plural}"
    words = f"{clause.get('color', '')} {clause['class']}".strip()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _rank(row: dict[str, Any]) -> bytes:
    return hashlib.sha256(row["prompt"].encode()).digest()


@dataclass(kw_only=True)
class Config:
    """What to write."""

    exclude: str = ""
    """GenEval's evaluation_metadata.jsonl, of whose prompts none is written."""
    out: str = str(Path(__file__).parent)
    """Folder to write into."""

    def __post_init__(self) -> None:
        wanted = "the evaluation_metadata.jsonl of GenEval"
        check(self.exclude != "", "exclude", self.exclude, wanted)


def main(words: list[str]) -> None:
    """Write train.jsonl and validation.jsonl into the folder `out`."""
    config = load_config(Config, words)
    lines = Path(config.exclude).read_text(encoding="utf-8").splitlines()
    folder = Path(config.out)
    for split, rows in generate([json.loads(line) for line in lines]).items():
        path = folder / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        logger.info("wrote %d prompts to %s", len(rows), path)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    usage = Usage("python datasets/geneval/generate.py", __doc__, Config)
    sys.exit(run_command(usage, sys.argv[1:], lambda: main(sys.argv[1:])))
