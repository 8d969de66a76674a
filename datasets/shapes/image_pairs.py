"""Pairs of images and texts as a parquet, which the writers of the shapes world share."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_pairs(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write columns, of which those with `image` in their names hold images, as a parquet that
    `datasets.load_dataset` reads as such."""
    from datasets import Dataset, Features, Image, Value

    kinds = {name: Image() if "image" in name else Value("string") for name in columns}
    Dataset.from_dict(columns, features=Features(kinds)).to_parquet(str(path))
