"""Write prompts for images with written words, for the reward `ocr`.

    python datasets/ocr/generate.py out=datasets/ocr

Each line is a prompt whose words stand in double quotes. Words of the validation prompts are in no
training prompt. Lines are in the order of a SHA-256 hash: the files are the same everywhere.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrl.config import ConfigError, check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

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


@dataclass(kw_only=True)
class Config:
    """Where to write."""

    out: str = ""
    """Folder of the files."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "a folder")


USAGE = Usage("python datasets/ocr/generate.py", __doc__, Config)


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


def write(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in prompts().items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Write as the command line says; return the exit status."""
    return run_command(
        USAGE, arguments, lambda: write(Path(load_config(Config, arguments).out)), ConfigError
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
