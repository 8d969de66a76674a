"""Completions of different lengths and a small objective over them, for tests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmrl.objectives.masked import NetworkConfig
from mmrl.objectives.text import CompletionConfig, Completions

TOKENIZER = Path(__file__).resolve().parents[3] / "datasets" / "shapes" / "tokenizer"
SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 2, "mlp_hidden_size": 48}
ROWS = [
    {"prompt": "two rings", "completion": "a red ring and a blue ring"},
    {"prompt": "a large red cross left of a circle", "completion": "cross"},
    {"prompt": "a", "completion": "three blue squares above two small tan circles"},
    {"prompt": "three circles", "completion": "12 34"},
    {"prompt": "a square or a ring", "completion": "a ring"},
    {"prompt": "count", "completion": "one two three"},
]


def write_rows(path: Path, rows: Sequence[Any] = ROWS) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def options(data: Path, /, **changes: Any) -> dict[str, Any]:
    values = {
        "data": str(data),
        "tokenizer": str(TOKENIZER),
        "network": NetworkConfig(**SIZES),
        "max_length": 96,
        "save_dtype": "float32",
    }
    return {**values, **changes}


def completions(data: Path, batch_size: int = len(ROWS), **changes: Any) -> Completions:
    return Completions(CompletionConfig(**options(data, **changes)), seed=0, batch_size=batch_size)
