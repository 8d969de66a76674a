"""Write the question files of the shapes world and, on demand, a parquet of supervised pairs.

python datasets/shapes/write_questions.py out=DIR
python datasets/shapes/write_questions.py out=DIR pairs=40000 seed=1 size=32
python datasets/shapes/write_questions.py out=DIR pairs=120000 descriptions=40 careless=40

`descriptions` is the share of the pairs, in per cent, that describe a scene instead of answering a
question about it, `careless` that of the questions whose answer is a careless one, `letters` that
of the answers to multiple choice that are a letter, not words; see `question_pairs.py`.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import arguments  # noqa: E402
from question_pairs import pairs  # noqa: E402
from questions import ROWS, data_url, picture, question_rows  # noqa: E402

logger = logging.getLogger("shapes")
DEFAULTS = {
    "out": "", "pairs": "0", "seed": "1", "size": "32", "descriptions": "0", "careless": "0",
    "letters": "100",
}  # fmt: skip


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


def write_pairs(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write pairs as a parquet that `datasets.load_dataset` reads as images."""
    from datasets import Dataset, Features, Image, Value

    texts = {name: Value("string") for name in columns if name != "image"}
    features = Features({"image": Image(), **texts})
    Dataset.from_dict(columns, features=features).to_parquet(str(path))


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    settings = arguments.read(words, DEFAULTS)
    folder = Path(settings["out"])
    shares = {name: int(settings[name]) / 100 for name in ("descriptions", "careless", "letters")}
    for name, share in shares.items():
        if share > 1:
            raise ValueError(f"{name}={settings[name]} is not a share in per cent, from 0 to 100.")
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_files(folder)
    if count := int(settings["pairs"]):
        paths.append(folder / "question_pairs.parquet")
        seed, size = int(settings["seed"]), int(settings["size"])
        write_pairs(paths[-1], pairs(count, seed, size, **shares))
    for path in paths:
        logger.info("wrote %s", path)


if __name__ == "__main__":
    arguments.run(main)
