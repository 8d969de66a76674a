"""Train the small tokenizer of the text tasks.

    python datasets/text/tokenizer.py out=datasets/text/tokenizer

The words of the prompts and the tags of the answers are one token each.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from byte_tokenizer import Config, build, run  # noqa: E402

from mmrl.config.command import Usage  # noqa: E402

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TAGS = ["<reasoning>", "</reasoning>", "<answer>", "</answer>"]
ROLES = ["system", "user", "assistant"]


def words() -> set[str]:
    """Every word of the prompts and roles."""
    files = sorted(Path(__file__).parent.glob("*_train.jsonl"))
    texts = [json.loads(row)["prompt"] for file in files for row in file.read_text().splitlines()]
    return {word for text in texts for word in re.findall("[a-z]+", text)} | set(ROLES)


def train() -> PreTrainedTokenizerFast:
    """The tokenizer."""
    return build(words(), gap="\\n\\n", tags=TAGS)


if __name__ == "__main__":
    sys.exit(run(Usage("python datasets/text/tokenizer.py", __doc__, Config), train))
