"""Train the small tokenizer of the shapes world.

    python datasets/shapes/tokenizer.py out=datasets/shapes/tokenizer

Every word of the prompt files becomes one token.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from byte_tokenizer import build, save  # noqa: E402

EXTRA = ["user", "assistant", "describe the image", "how many what color shape is are yes no"]


def words() -> set[str]:
    """Every word of the prompts and of the conversations around them."""
    rows = Path(__file__).with_name("train.jsonl").read_text().splitlines()
    texts = [json.loads(row)["prompt"] for row in rows] + EXTRA
    return {word for text in texts for word in text.split()}


if __name__ == "__main__":
    save(build(words(), gap="\\n"))
