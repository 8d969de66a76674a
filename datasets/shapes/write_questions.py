"""Write the question files of the shapes world and, on demand, a parquet of supervised pairs.

python datasets/shapes/write_questions.py out=DIR
python datasets/shapes/write_questions.py out=DIR pairs=40000 seed=1 size=32
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import arguments  # noqa: E402
from questions import ROWS, data_url, picture, question_rows  # noqa: E402

logger = logging.getLogger("shapes")
DEFAULTS = {"out": "", "pairs": "0", "seed": "1", "size": "32"}


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


def pairs(count: int, seed: int, size: int = 32) -> dict[str, list[Any]]:
    """Training questions with their answers.

    Args:
        count: how many.
        seed: the same seed gives the same pairs; 0 begins as the committed file was drawn.
        size: side of the images in pixels.

    Returns:
        Columns `image` (PNG bytes and no path, as the Image feature of Hugging Face datasets stores
        them), `prompt`, `completion` (the letter, or the short answer), `tag` and `form`.
    """
    rows = question_rows("train", count, seed)
    return {
        "image": [{"bytes": picture(row["scene"], size), "path": None} for row in rows],
        "prompt": [row["question"] for row in rows],
        "completion": [row["ground_truth_answer"] for row in rows],
        "tag": [row["tag"] for row in rows],
        "form": [row["form"] for row in rows],
    }


def write_pairs(path: Path, count: int, seed: int, size: int = 32) -> None:
    """Write pairs as a parquet that `datasets.load_dataset` reads as images."""
    from datasets import Dataset, Features, Image, Value

    columns = pairs(count, seed, size)
    texts = {name: Value("string") for name in columns if name != "image"}
    features = Features({"image": Image(), **texts})
    Dataset.from_dict(columns, features=features).to_parquet(str(path))


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    settings = arguments.read(words, DEFAULTS)
    folder = Path(settings["out"])
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_files(folder)
    if count := int(settings["pairs"]):
        paths.append(folder / "question_pairs.parquet")
        write_pairs(paths[-1], count, int(settings["seed"]), int(settings["size"]))
    for path in paths:
        logger.info("wrote %s", path)


if __name__ == "__main__":
    arguments.run(main)
