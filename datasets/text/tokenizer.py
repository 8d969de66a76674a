"""Train the small tokenizer of the text tasks.

    python datasets/text/tokenizer.py out=datasets/text/tokenizer

The words of the prompts and the tags of the answers are one token each.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from byte_tokenizer import build, save  # noqa: E402

TAGS = ["<reasoning>", "</reasoning>", "<answer>", "</answer>"]
ROLES = ["system", "user", "assistant"]


def words() -> set[str]:
    """Every word of the prompts and roles."""
    files = sorted(Path(__file__).parent.glob("*_train.jsonl"))
    texts = [json.loads(row)["prompt"] for file in files for row in file.read_text().splitlines()]
    return {word for text in texts for word in re.findall("[a-z]+", text)} | set(ROLES)


if __name__ == "__main__":
    save(build(words(), gap="\\n\\n", tags=TAGS))
