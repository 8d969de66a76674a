"""Write the prompts for clips of the shapes world and, on demand, a parquet of rendered clips.

    python datasets/shapes/write_motion.py out=DIR
    python datasets/shapes/write_motion.py out=DIR pairs=8000 still=50

What the clips show says `motion.py`.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from image_pairs import write_pairs  # noqa: E402
from motion import ROWS, draw_clip, prompt_rows, split_compositions, wordings  # noqa: E402

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

logger = logging.getLogger("shapes")


@dataclass(kw_only=True)
class Config:
    """What to write."""

    out: str = ""
    """Folder to write into."""
    pairs: int = 0
    """Rendered clips; 0 writes the prompt files alone."""
    still: int = 0
    """Percent of the clips in which nothing moves, whatever the prompt says."""
    seed: int = 1
    """Names the clips."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")
        for key in ("pairs", "seed"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        check(0 <= self.still <= 100, "still", self.still, "from 0 to 100")


def write_files(folder: Path) -> list[Path]:
    """Write motion_train.jsonl, motion_validation.jsonl and motion_test.jsonl."""
    paths = [folder / f"motion_{split}.jsonl" for split in ROWS]
    for split, path in zip(ROWS, paths, strict=True):
        lines = [json.dumps(row) + "\n" for row in prompt_rows(split)]
        path.write_text("".join(lines), encoding="utf-8")
    return paths


def draw_pairs(config: Config) -> dict[str, list[Any]]:
    """Columns `image` (an animated PNG, as the Image feature of Hugging Face datasets stores it)
    and `prompt` of rendered clips, uniform over training compositions, then wordings."""
    rng, worded = np.random.default_rng(config.seed), [*map(wordings, split_compositions("train"))]
    columns: dict[str, list[Any]] = {"image": [], "prompt": []}
    for _ in range(config.pairs):
        rows = worded[int(rng.random() * len(worded))]
        row = rows[int(rng.random() * len(rows))]
        still = rng.random() * 100 < config.still
        first, *rest = draw_clip(row["include"], rng, still)
        buffer = io.BytesIO()
        first.save(buffer, "PNG", save_all=True, append_images=rest, compress_level=1)
        columns["image"].append({"bytes": buffer.getvalue(), "path": None})
        columns["prompt"].append(row["prompt"])
    return columns


def main(words: list[str]) -> None:
    """Write everything the command line asks for into the folder `out`."""
    config = load_config(Config, words)
    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_files(folder)
    if config.pairs:
        paths.append(folder / "motion_pairs.parquet")
        write_pairs(paths[-1], draw_pairs(config))
    for path in paths:
        logger.info("wrote %s", path)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    usage = Usage("python datasets/shapes/write_motion.py", __doc__, Config)
    sys.exit(run_command(usage, sys.argv[1:], lambda: main(sys.argv[1:])))
