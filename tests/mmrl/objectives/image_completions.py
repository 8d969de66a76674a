"""Questions about small pictures with answers, and a small objective over them, for tests."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmrl.objectives.text import CompletionConfig, Completions
from tests.mmrl.objectives.completions import options
from tests.mmrl.starts import write_start
from tests.pictures import png

TOWER = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 3}
TOWER |= {"num_attention_heads": 2, "image_size": 8, "patch_size": 4}
NETWORK = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
NETWORK |= {"num_key_value_heads": 2, "intermediate_size": 48, "mm_hidden_size": 12}
NETWORK |= {"image_aspect_ratio": "anyres_max_4", "image_grid_pinpoints": "(1x1),...,(2x2)"}
NETWORK |= {"vision": TOWER}
SIZES = ((8, 8), (20, 9), (8, 16), (16, 16))
ASKED = ("how many red rings are there?", "is there a blue cross?", "what color is the ring?")


def noise(number: int) -> bytes:
    width, height = SIZES[number % len(SIZES)]
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return png(Image.fromarray(pixels))


def url(number: int) -> str:
    return f"data:image/png;base64,{base64.b64encode(noise(number)).decode()}"


ROWS = [
    {"question": ASKED[0], "answer": "3", "image": url(0)},
    {"question": ASKED[1], "answer": "no", "image": url(1)},
    {"question": ASKED[2], "answer": "red or blue", "image": url(2)},
    {"question": "the larger one?", "answer": "left", "image": [url(3), url(4)]},
]


def settings(data: Path, /, **changes: Any) -> dict[str, Any]:
    """Options of an objective that sees; of a new network unless another `model` is named."""
    values: dict[str, Any] = {"prompt_column": "question", "completion_column": "answer"}
    values |= {"max_length": 200}
    if "model" not in changes:
        start = write_start(data.parent / "seeing", "shapes/llada_v", **NETWORK)
        values |= {"model": start, "new_weights": True, "train_vision_tower": True}
    return options(data, **{**values, **changes})


def seeing(data: Path, batch_size: int = len(ROWS), **changes: Any) -> Completions:
    config = CompletionConfig(**settings(data, **changes))
    return Completions(config, seed=0, batch_size=batch_size)
