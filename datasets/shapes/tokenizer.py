"""Train the small tokenizer of the shapes world.

    python datasets/shapes/tokenizer.py out=datasets/shapes/tokenizer

Every word of the prompt files becomes one token.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from byte_tokenizer import Config, build, run  # noqa: E402

from mmrl.config.command import Usage  # noqa: E402

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EXTRA = ["user", "assistant", "describe the image", "how many what color shape is are yes no"]


def words() -> set[str]:
    """Every word of the prompts and of the conversations around them."""
    rows = Path(__file__).with_name("train.jsonl").read_text().splitlines()
    texts = [json.loads(row)["prompt"] for row in rows] + EXTRA
    return {word for text in texts for word in text.split()}


def train() -> PreTrainedTokenizerFast:
    """The tokenizer."""
    return build(words(), gap="\\n")


if __name__ == "__main__":
    sys.exit(run(Usage("python datasets/shapes/tokenizer.py", __doc__, Config), train))
