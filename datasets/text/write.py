"""Write the prompt files of the text tasks and, on demand, a parquet of supervised pairs.

python datasets/text/write.py out=DIR
python datasets/text/write.py out=DIR pairs=60000 seed=0 sets=countdown_small,sudoku,arithmetic
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import arguments  # noqa: E402
import arithmetic  # noqa: E402
import countdown  # noqa: E402
import sudoku  # noqa: E402
from splits import SPLITS  # noqa: E402

logger = logging.getLogger("text")


class Kind(NamedTuple):
    """One set: its endless rows of a split and a seed, and the completion of a row."""

    rows: Callable[[str, int], Iterator[dict[str, Any]]]
    completion: Callable[[dict[str, Any]], str]


SETS = {
    "countdown": Kind(countdown.rows, countdown.completion),
    "countdown_small": Kind(partial(countdown.rows, largest=20), countdown.completion),
    "countdown_four": Kind(partial(countdown.rows, numbers=4), countdown.completion),
    "sudoku": Kind(sudoku.rows, sudoku.completion),
    "arithmetic": Kind(arithmetic.rows, arithmetic.completion),
}
COMMITTED = ("countdown", "countdown_small", "sudoku", "arithmetic")
HELD_OUT_ROWS = {"validation": 128, "test": 256}
DEFAULTS = {"out": "", "pairs": "0", "seed": "0", "sets": ",".join(COMMITTED), "rows": "2000"}


def prompt_rows(name: str, split: str, count: int) -> list[dict[str, Any]]:
    """The first distinct rows of a set and a split, the same on every machine."""
    found: dict[str, dict[str, Any]] = {}
    for row in SETS[name].rows(split, 0):
        found.setdefault(row["prompt"], row)
        if len(found) == count:
            break
    return [{"id": f"{name}-{split}-{n:05d}", **row} for n, row in enumerate(found.values())]


def write_prompts(folder: Path, name: str, rows: int) -> list[Path]:
    """Write the files of a set, `<set>_<split>.jsonl`, and return their paths."""
    paths = []
    for split in SPLITS:
        count = HELD_OUT_ROWS.get(split, rows)
        lines = [json.dumps(row) + "\n" for row in prompt_rows(name, split, count)]
        paths.append(folder / f"{name}_{split}.jsonl")
        paths[-1].write_text("".join(lines), encoding="utf-8")
    return paths


def pairs(names: list[str], count: int, seed: int) -> dict[str, list[str]]:
    """Prompts of the training split with worked solutions, set after set in turn.

    Args:
        names: of the sets.
        count: how many pairs.
        seed: the same seed gives the same pairs; 0 starts with the rows of the training files.

    Returns:
        Columns `prompt`, `completion` and `set`.
    """
    streams = [(name, SETS[name].rows("train", seed)) for name in names]
    turns = ((name, next(stream)) for _ in iter(int, 1) for name, stream in streams)
    columns: dict[str, list[str]] = {"prompt": [], "completion": [], "set": []}
    for name, row in islice(turns, count):
        columns["prompt"].append(row["prompt"])
        columns["completion"].append(SETS[name].completion(row))
        columns["set"].append(name)
    return columns


def write_pairs(path: Path, names: list[str], count: int, seed: int) -> None:
    """Write pairs as a parquet."""
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(pairs(names, count, seed)), path)


def parse_arguments(words: list[str]) -> dict[str, str]:
    """Read `key=value` words over `DEFAULTS`.

    Raises:
        ValueError: see `arguments.read`; also an unknown set.
    """
    settings = arguments.read(words, DEFAULTS, texts=("out", "sets"))
    unknown = set(settings["sets"].split(",")) - SETS.keys()
    if unknown:
        raise ValueError(f"sets names {sorted(unknown)}; allowed are {', '.join(SETS)}.")
    return settings


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    settings = parse_arguments(words)
    folder, names = Path(settings["out"]), settings["sets"].split(",")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [p for name in names for p in write_prompts(folder, name, int(settings["rows"]))]
    if count := int(settings["pairs"]):
        paths.append(folder / "train_pairs.parquet")
        write_pairs(paths[-1], names, count, int(settings["seed"]))
    for path in paths:
        logger.info("wrote %s", path)


if __name__ == "__main__":
    arguments.run(main)
