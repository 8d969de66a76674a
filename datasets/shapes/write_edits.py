"""Write the edit files of the shapes world and, on demand, a parquet of supervised edits.

    python datasets/shapes/write_edits.py out=DIR
    python datasets/shapes/write_edits.py out=DIR pairs=40000 seed=1 size=32

What the edits are says `edits.py`.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from edits import ROWS, edit_rows  # noqa: E402
from image_pairs import write_pairs  # noqa: E402
from questions import data_url, picture  # noqa: E402

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

logger = logging.getLogger("shapes")


@dataclass(kw_only=True)
class Config:
    """What to write."""

    out: str = ""
    """Folder to write into."""
    pairs: int = 0
    """Supervised edits; 0 writes the prompt files alone."""
    seed: int = 1
    """Names the supervised edits."""
    size: int = 32
    """Side of an image in pixels."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")
        for key in ("pairs", "seed"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        check(self.size >= 1, "size", self.size, "at least 1")


def file_rows(split: str) -> list[dict[str, Any]]:
    """The rows of a committed file: instruction, metadata, and the source as a data URL."""
    rows = edit_rows(split, ROWS[split])
    images = [data_url(picture(row.pop("source"))) for row in rows]
    kept = ({k: v for k, v in row.items() if k != "target"} for row in rows)
    return [{**row, "image": image} for row, image in zip(kept, images, strict=True)]


def write_files(folder: Path) -> list[Path]:
    """Write edits_train.jsonl, edits_validation.jsonl and edits_test.jsonl."""
    paths = []
    for split in ROWS:
        paths.append(folder / f"edits_{split}.jsonl")
        lines = [json.dumps(row) + "\n" for row in file_rows(split)]
        paths[-1].write_text("".join(lines), encoding="utf-8")
    return paths


def pairs(count: int, seed: int, size: int = 32) -> dict[str, list[Any]]:
    """Supervised edits of training compositions.

    Args:
        count: how many.
        seed: the same seed gives the same edits; 0 begins as the committed file was drawn.
        size: side of the images in pixels.

    Returns:
        Columns `source_image` and `image`, the edited one (PNG bytes and no path, as the Image
        feature of Hugging Face datasets stores them), `prompt` (the instruction) and `tag`.
    """
    rows = edit_rows("train", count, seed)
    images = {"source_image": "source", "image": "target"}
    return {
        name: [{"bytes": picture(row[scene], size), "path": None} for row in rows]
        for name, scene in images.items()
    } | {name: [row[name] for row in rows] for name in ("prompt", "tag")}


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    config = load_config(Config, words)
    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_files(folder)
    if config.pairs:
        paths.append(folder / "edit_pairs.parquet")
        write_pairs(paths[-1], pairs(config.pairs, config.seed, config.size))
    for path in paths:
        logger.info("wrote %s", path)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    usage = Usage("python datasets/shapes/write_edits.py", __doc__, Config)
    sys.exit(run_command(usage, sys.argv[1:], lambda: main(sys.argv[1:])))
