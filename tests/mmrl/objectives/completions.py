"""Completions of different lengths and a small objective over them, for tests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.objectives.scored_rows import Rows
from mmrl.objectives.text import CompletionConfig, Completions
from mmrl.objectives.text_examples import Example
from tests.mmrl.starts import SHAPES, write_start

TOKENIZER = SHAPES / "tokenizer"
SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "mlp_hidden_size": 48}
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
    """Options of the objective; of a new network unless another `model` is named."""
    values = {"data": str(data), "max_length": 96, "save_dtype": "float32"}
    if "model" not in changes:
        start = write_start(data.parent / "start", "text/llada", TOKENIZER, **SIZES)
        values |= {"model": start, "new_weights": True}
    return {**values, **changes}


def completions(data: Path, batch_size: int = len(ROWS), **changes: Any) -> Completions:
    return Completions(CompletionConfig(**options(data, **changes)), seed=0, batch_size=batch_size)


def visits(objective: Completions, count: int) -> list[Rows]:
    """The first micro-batches of one process."""
    return [objective.batch(step, 0, 1) for step in range(count)]


def ids(objective: Completions, text: str) -> list[int]:
    """Tokens of a text."""
    return objective.text.tokenizer(text, add_special_tokens=False)["input_ids"]


def example_of(objective: Completions, batch: Rows, row: int) -> Example:
    """The example that a row holds."""
    ids = batch.targets[row, batch.real[row]].tolist()
    whole = [[*e.prompt.tolist(), *e.completion.tolist()] for e in objective.source.rows.items]
    return objective.source.rows.items[next(n for n, e in enumerate(whole) if e == ids[: len(e)])]


def gradients(objective: Completions, batches: list[Rows]) -> tuple[float, Tensor]:
    """Mean loss of batches and its gradient, as one vector."""
    objective.module.zero_grad()
    total = torch.zeros(())
    for batch in batches:
        loss = objective.loss(batch)[0] / len(batches)
        loss.backward()
        total += loss.detach()
    grads = [p.grad for p in objective.module.parameters()]
    return float(total), torch.cat([g.flatten() for g in grads if g is not None])
