"""Write the prompt files of the shapes world and a parquet of rendered training pairs.

    python datasets/shapes/write.py out=DIR pairs=40000 seed=0 size=32 related=0 careless=0
    python datasets/shapes/write.py out=DIR tags="{color_attr: 4, counting: 2}"

Equal settings write equal files.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from image_pairs import write_pairs  # noqa: E402
from prompts import (  # noqa: E402
    SPLITS,
    TAGS,
    careless_row,
    prompt_rows,
    related_rows,
    scene_for,
    split_compositions,
    wordings,
)
from render import render  # noqa: E402

from mmrl.config import check, check_choice, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

logger = logging.getLogger("shapes")


@dataclass(kw_only=True)
class Config:
    """What to write."""

    out: str = ""
    """Folder to write into."""
    pairs: int = 40000
    """Training pairs; 0 writes the prompt files alone."""
    related: int = 0
    """Percent of the pairs that relate objects with colours or sizes: `prompts.related_rows`."""
    careless: int = 0
    """Percent of the pairs whose image is a careless one: `prompts.careless_row`."""
    tags: dict[str, int] = field(default_factory=dict)
    """How often a tag has its turn while those that are not named have theirs once."""
    seed: int = 0
    """Names the pairs."""
    size: int = 32
    """Side of an image in pixels."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")
        for key in ("pairs", "seed"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        for key in ("related", "careless"):
            check(0 <= getattr(self, key) <= 100, key, getattr(self, key), "from 0 to 100")
        for tag, turns in self.tags.items():
            check_choice("tags", tag, TAGS)
            check(turns >= 0, f"tags.{tag}", turns, "0 or more")
        check(any(self.turns.values()), "tags", self.tags, "one turn or more of some tag")
        check(self.size >= 1, "size", self.size, "at least 1")

    @property
    def turns(self) -> dict[str, int]:
        """How often each tag has its turn."""
        return dict.fromkeys(TAGS, 1) | self.tags


def write_prompts(folder: Path) -> list[Path]:
    """Write train.jsonl, validation.jsonl and test.jsonl into a folder and return their paths."""
    paths = []
    for split in SPLITS:
        path = folder / f"{split}.jsonl"
        lines = [json.dumps(row) + "\n" for row in prompt_rows(split)]
        path.write_text("".join(lines), encoding="utf-8")
        paths.append(path)
    return paths


def draw_pairs(config: Config) -> dict[str, list[Any]]:
    """Render training pairs, tag by tag in turn, uniform over compositions, then wordings.

    Returns:
        Columns `image` (PNG bytes and no path, as the Image feature of Hugging Face datasets
        stores them), `prompt` and `metadata` (JSON text). Behind a careless image, prompt and
        metadata are what was asked for.
    """
    rng = np.random.default_rng(config.seed)
    pools = {tag: [wordings(c) for c in split_compositions(tag)["train"]] for tag in TAGS}
    others = [wordings(row) for row in related_rows()] if config.related else []
    tags = cycle([tag for tag, turns in config.turns.items() for _ in range(turns)])
    columns: dict[str, list[Any]] = {"image": [], "prompt": [], "metadata": []}
    for i in range(config.pairs):
        pool = others if i * config.related % 100 < config.related else pools[next(tags)]
        worded = pool[int(rng.random() * len(pool))]
        metadata = worded[int(rng.random() * len(worded))]
        hurried = config.careless > 0 and rng.random() * 100 < config.careless
        shown = careless_row(metadata) if hurried else metadata
        buffer = io.BytesIO()
        render(scene_for(shown, rng), config.size).save(buffer, "PNG", compress_level=1)
        columns["image"].append({"bytes": buffer.getvalue(), "path": None})
        columns["prompt"].append(metadata["prompt"])
        columns["metadata"].append(json.dumps(metadata))
    return columns


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    config = load_config(Config, words)
    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_prompts(folder)
    if config.pairs:
        paths.append(folder / "train_pairs.parquet")
        write_pairs(paths[-1], draw_pairs(config))
    for path in paths:
        logger.info("wrote %s", path)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    usage = Usage("python datasets/shapes/write.py", __doc__, Config)
    sys.exit(run_command(usage, sys.argv[1:], lambda: main(sys.argv[1:])))
