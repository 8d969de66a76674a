"""Train the small tokenizer for questions about the shapes world.

    python datasets/shapes/tokenizer_questions.py out=datasets/shapes/tokenizer_questions

Every word of the questions, their answers and the descriptions becomes one token, and so does the
text that LLaDA-V begins every conversation with, which is the same in all rows.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parents[1])]

from byte_tokenizer import Config, build, run  # noqa: E402
from question_pairs import DESCRIBE  # noqa: E402
from render import BACKGROUNDS, SIZES  # noqa: E402

from mmrl.config.command import Usage  # noqa: E402

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ROLES = ["system", "user", "assistant"]
NOTES = ["answer", "none"]


def words() -> set[str]:
    """Every word of the questions, the descriptions and the roles."""
    rows = (FOLDER / "questions_train.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(row)["question"] for row in rows] + [DESCRIBE]
    return {word for text in texts for word in re.findall("[a-z]+", text)} | {
        *BACKGROUNDS,
        *SIZES,
        *ROLES,
        *NOTES,
    }


def train() -> PreTrainedTokenizerFast:
    """The tokenizer."""
    from mmrl.models.layouts.image_chat import SYSTEM

    return build(words(), gap="\\n\\n", tags=[SYSTEM])


if __name__ == "__main__":
    sys.exit(run(Usage("python datasets/shapes/tokenizer_questions.py", __doc__, Config), train))
