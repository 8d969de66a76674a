"""Write the prompt files of the text tasks and, on demand, a parquet of supervised pairs.

    python datasets/text/write.py out=DIR
    python datasets/text/write.py out=DIR pairs=60000 sets=countdown_small:3,sudoku careless=50

What the sets are says `README.md` beside this file.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import arithmetic  # noqa: E402
import countdown  # noqa: E402
import sudoku  # noqa: E402
from splits import SPLITS  # noqa: E402

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

logger = logging.getLogger("text")


class Kind(NamedTuple):
    """One set: its endless rows of a split and a seed, and the solutions of a row."""

    rows: Callable[[str, int], Iterator[dict[str, Any]]]
    completion: Callable[[dict[str, Any]], str]
    careless: Callable[[dict[str, Any], random.Random], str] | None = None


COUNTDOWN = Kind(countdown.rows, countdown.completion)
ARITHMETIC = Kind(arithmetic.rows, arithmetic.completion, arithmetic.careless)
SUDOKU = Kind(sudoku.rows, sudoku.completion, sudoku.careless)
SMALL = partial(arithmetic.rows, largest=9, largest_factor=9)
COUNTDOWN_SMALL = COUNTDOWN._replace(rows=partial(countdown.rows, largest=20))
SETS = {
    "countdown": COUNTDOWN,
    "countdown_small": COUNTDOWN_SMALL,
    "countdown_small_careless": COUNTDOWN_SMALL._replace(careless=countdown.careless),
    "countdown_four": COUNTDOWN._replace(rows=partial(countdown.rows, numbers=4)),
    "sudoku": SUDOKU,
    "sudoku_hard": SUDOKU._replace(rows=partial(sudoku.rows, fewest=11, most=12)),
    "arithmetic": ARITHMETIC,
    "arithmetic_small": ARITHMETIC._replace(rows=SMALL),
    "arithmetic_steps": Kind(SMALL, arithmetic.steps, arithmetic.careless_steps),
}
COMMITTED = (
    "countdown",
    "countdown_small",
    "sudoku",
    "sudoku_hard",
    "arithmetic",
    "arithmetic_small",
)
HELD_OUT_ROWS = {"validation": 128, "test": 256}


@dataclass(kw_only=True)
class Config:
    """What to write."""

    out: str = ""
    """Folder to write into."""
    sets: str = ",".join(COMMITTED)
    """Sets, separated by commas; a number after one, `sudoku:3`, is its weight among the pairs."""
    rows: int = 2000
    """Training prompts of a set."""
    pairs: int = 0
    """Supervised pairs; 0 writes the prompt files alone."""
    seed: int = 0
    """Names the pairs; 0 starts with the rows of the training files."""
    careless: int = 0
    """Share of the pairs, in per cent, whose solution is a careless one, of sets that have such:
    Sudoku, arithmetic and `countdown_small_careless`."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")
        for key in ("rows", "pairs", "seed"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        check(0 <= self.careless <= 100, "careless", self.careless, "from 0 to 100 per cent")
        read_weights(self.sets)


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


def pairs(
    weights: Mapping[str, int], count: int, seed: int, careless: float
) -> dict[str, list[str]]:
    """Prompts of the training split with solutions, set after set in turn.

    Args:
        weights: rows of a set in a turn.
        count: how many pairs.
        seed: the same seed gives the same pairs; 0 starts with the rows of the training files.
        careless: share of the pairs, of sets that have such, with a careless solution.

    Returns:
        Columns `prompt`, `completion` and `set`.
    """
    rng = random.Random(f"pairs {seed}")
    streams = {name: SETS[name].rows("train", seed) for name in weights}
    names = (name for _ in iter(int, 1) for name in weights for _ in range(weights[name]))
    columns: dict[str, list[str]] = {"prompt": [], "completion": [], "set": []}
    for name in islice(names, count):
        row, kind = next(streams[name]), SETS[name]
        hurried = kind.careless if rng.random() < careless else None
        columns["prompt"].append(row["prompt"])
        columns["completion"].append(hurried(row, rng) if hurried else kind.completion(row))
        columns["set"].append(name)
    return columns


def write_pairs(path: Path, columns: dict[str, list[str]]) -> None:
    """Write pairs as a parquet."""
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(columns), path)


def read_weights(text: str) -> dict[str, int]:
    """Sets and their weights, from text such as `sudoku,countdown:3`.

    Raises:
        ValueError: an unknown set, or a weight that is not a whole number from 1.
    """
    found = [re.fullmatch(r"(\w+)(?::([1-9]\d*))?", part) for part in text.split(",")]
    if None in found:
        raise ValueError(f"sets={text!r} is not a list such as sudoku,countdown:3.")
    weights = {match[1]: int(match[2] or 1) for match in found if match}
    if unknown := weights.keys() - SETS.keys():
        raise ValueError(f"sets names {sorted(unknown)}; allowed are {', '.join(SETS)}.")
    return weights


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    config = load_config(Config, words)
    folder, weights = Path(config.out), read_weights(config.sets)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [path for name in weights for path in write_prompts(folder, name, config.rows)]
    if config.pairs:
        paths.append(folder / "train_pairs.parquet")
        made = pairs(weights, config.pairs, config.seed, config.careless / 100)
        write_pairs(paths[-1], made)
    for path in paths:
        logger.info("wrote %s", path)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    usage = Usage("python datasets/text/write.py", __doc__, Config)
    sys.exit(run_command(usage, sys.argv[1:], lambda: main(sys.argv[1:])))
