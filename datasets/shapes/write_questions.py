"""Write the question files of the shapes world and, on demand, a parquet of supervised pairs.

    python datasets/shapes/write_questions.py out=DIR
    python datasets/shapes/write_questions.py out=DIR pairs=40000 seed=1 size=32
    python datasets/shapes/write_questions.py out=DIR pairs=120000 descriptions=40 careless=40

What the pairs are says `question_pairs.py`.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from image_pairs import write_pairs  # noqa: E402
from question_pairs import pairs  # noqa: E402
from questions import ROWS, data_url, picture, question_rows  # noqa: E402

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

logger = logging.getLogger("shapes")
SHARES = ("descriptions", "careless", "letters")


@dataclass(kw_only=True)
class Config:
    """What to write."""

    out: str = ""
    """Folder to write into."""
    pairs: int = 0
    """Supervised pairs; 0 writes the question files alone."""
    seed: int = 1
    """Names the pairs."""
    size: int = 32
    """Side of an image in pixels."""
    descriptions: int = 0
    """Share of the pairs, in per cent, that describe a scene instead of answering a question."""
    careless: int = 0
    """Share of the questions, in per cent, whose answer is a careless one."""
    letters: int = 100
    """Share of the answers to multiple choice, in per cent, that are a letter and not words."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")
        for key in ("pairs", "seed"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        check(self.size >= 1, "size", self.size, "at least 1")
        for key in SHARES:
            check(0 <= getattr(self, key) <= 100, key, getattr(self, key), "from 0 to 100 per cent")


def file_rows(split: str) -> list[dict[str, Any]]:
    """The rows of a committed file: dLLM-RL's vision schema, the image as a data URL."""
    rows = question_rows(split, ROWS[split])
    images = [data_url(picture(row.pop("scene"))) for row in rows]
    return [{**row, "image": image} for row, image in zip(rows, images, strict=True)]


def write_files(folder: Path) -> list[Path]:
    """Write questions_train.jsonl, questions_validation.jsonl and questions_test.jsonl."""
    paths = []
    for split in ROWS:
        paths.append(folder / f"questions_{split}.jsonl")
        lines = [json.dumps(row) + "\n" for row in file_rows(split)]
        paths[-1].write_text("".join(lines), encoding="utf-8")
    return paths


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    config = load_config(Config, words)
    folder = Path(config.out)
    shares = {name: getattr(config, name) / 100 for name in SHARES}
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_files(folder)
    if config.pairs:
        paths.append(folder / "question_pairs.parquet")
        write_pairs(paths[-1], pairs(config.pairs, config.seed, config.size, **shares))
    for path in paths:
        logger.info("wrote %s", path)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    usage = Usage("python datasets/shapes/write_questions.py", __doc__, Config)
    sys.exit(run_command(usage, sys.argv[1:], lambda: main(sys.argv[1:])))
