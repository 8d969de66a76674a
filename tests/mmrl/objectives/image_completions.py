"""Questions about small pictures with answers, and a small objective over them, for tests."""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmrl.objectives.start_config import VisionConfig
from mmrl.objectives.text import CompletionConfig, Completions
from tests.mmrl.objectives.completions import TOKENIZER, options

WORDS = TOKENIZER.with_name("tokenizer_questions")
TOWER = {
    "hidden_size": 12,
    "intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
    "image_grid_pinpoints": "(1x1),...,(2x2)",
    "max_tiles": 4,
}
SIZES = ((8, 8), (20, 9), (8, 16), (16, 16))
ASKED = ("how many red rings are there?", "is there a blue cross?", "what color is the ring?")


def png(number: int) -> bytes:
    width, height = SIZES[number % len(SIZES)]
    noise = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    return buffer.getvalue()


def url(number: int) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(number)).decode()}"


ROWS = [
    {"question": ASKED[0], "answer": "3", "image": url(0)},
    {"question": ASKED[1], "answer": "no", "image": url(1)},
    {"question": ASKED[2], "answer": "red or blue", "image": url(2)},
    {"question": "the larger one?", "answer": "left", "image": [url(3), url(4)]},
]


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def settings(data: Path, /, **changes: Any) -> dict[str, Any]:
    """Options of an objective that sees; those of a new network where no model is named."""
    values: dict[str, Any] = {
        "max_length": 200,
        "prompt_column": "question",
        "completion_column": "answer",
    }
    if "model" not in changes:
        values |= {"vision": VisionConfig(**TOWER), "train_vision_tower": True}
    tokenizer = "" if "model" in changes else str(WORDS)
    return options(data, **{"tokenizer": tokenizer, **values, **changes})


def seeing(data: Path, batch_size: int = len(ROWS), **changes: Any) -> Completions:
    config = CompletionConfig(**settings(data, **changes))
    return Completions(config, seed=0, batch_size=batch_size)
