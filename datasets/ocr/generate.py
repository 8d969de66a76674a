"""Write prompts for images with written words, for the reward `ocr`.

    python datasets/ocr/generate.py

Each line is a prompt whose words stand in double quotes. Words of the validation prompts are in no
training prompt. Lines are in the order of a SHA-256 hash: the files are the same everywhere.
"""

from __future__ import annotations

import hashlib
from itertools import product
from pathlib import Path

PLACES = (
    "A wooden sign beside a forest path",
    "A neon sign above the door of a diner at night",
    "A chalkboard in front of a small cafe",
    "The cover of an old book on a desk",
    "A poster on a brick wall",
    "A birthday cake with icing",
    "A white t-shirt on a hanger",
    "A street sign at a busy crossing",
    "The side of a delivery van",
    "A banner over the gate of a school",
    "A coffee mug on a window sill",
    "A handwritten note on a fridge",
)
FIRST = ("Open", "Fresh", "Quiet", "Lucky", "Golden", "Winter", "Silver", "Happy", "Green", "Last")
SECOND = ("Harbor", "Bakery", "Garden", "Bridge", "Lantern", "River", "Market", "Stories")
HELD_OUT = 8
"""Pairs of words for validation."""


def rank(text: str) -> str:
    """Where a text is in the order of all."""
    return hashlib.sha256(text.encode()).hexdigest()


def prompts() -> dict[str, list[str]]:
    """The prompts by the name of their file."""
    pairs = sorted((" ".join(pair) for pair in product(FIRST, SECOND)), key=rank)
    parts = {"validation": pairs[:HELD_OUT], "train": pairs[HELD_OUT:]}
    return {
        name: sorted((f'{p} that says "{words}"' for p in PLACES for words in own), key=rank)
        for name, own in parts.items()
    }


if __name__ == "__main__":
    for name, lines in prompts().items():
        Path(__file__).with_name(f"{name}.txt").write_text("\n".join(lines) + "\n")
