"""Supervised runs on streamed data: the batches of any number of processes, and exact resume."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.objectives.masked import Masked
from mmrl.objectives.options import MaskedConfig
from mmrl.objectives.scored_rows import Rows
from mmrl.sft import SFTConfig, train
from tests.mmrl.objectives.completions import completions, options
from tests.mmrl.runs import metrics, same_weights
from tests.mmrl.starts import SHAPES, write_drawing

STREAM = {"streaming": True, "shuffle_buffer": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine images with their captions."""
    folder, draw = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for n in range(9):
        pixels = draw.integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{n}.png")
    rows = [{"file_name": f"{n}.png", "text": f"{n} rings"} for n in range(9)]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_streamed_batches_do_not_depend_on_the_number_of_processes(data: Path) -> None:
    one, two = completions(data, 4, **STREAM), completions(data, 2, **STREAM)
    for step in range(4):
        whole, parts = one.batch(step, 0, 1), [two.batch(step, rank, 2) for rank in range(2)]
        assert held(whole) == held(parts[0]) + held(parts[1])


def held(batch: Rows) -> Counter[tuple[int, ...]]:
    """The token ids of the examples of a micro-batch."""
    rows = zip(batch.targets, batch.real, strict=True)
    return Counter(tuple(row[real].tolist()) for row, real in rows)


def run(output: Path, objective: dict[str, Any], **changes: Any) -> Path:
    values: dict[str, Any] = {"max_steps": 4, "save_steps": 1, "logging_steps": 1, "bf16": False}
    values |= {"per_device_train_batch_size": 3, "save_total_limit": None}
    train(SFTConfig(output_dir=str(output), objective=objective, **{**values, **changes}))
    return output


def test_a_streamed_run_resumes_exactly(data: Path, tmp_path: Path) -> None:
    objective = {"name": "text", **options(data), **STREAM}
    whole = run(tmp_path / "whole", objective)
    second = str(whole / "checkpoints" / "2")
    again = run(tmp_path / "again", objective, resume_from_checkpoint=second)
    assert metrics(again)[-2:] == metrics(whole)[-2:]
    assert same_weights(again / "final", whole / "final")


def pairs(folder: Path, **changes: Any) -> dict[str, Any]:
    values = {"data": str(folder), "text_column": "text", "vq": str(SHAPES / "checkpoints/magvit")}
    values |= {"model": write_drawing(folder.with_name("start")), "new_weights": True}
    return {**values, "image_size": 32, "max_prompt_length": 24, **STREAM, **changes}


def test_a_missing_column_is_named_before_weights_load(folder: Path) -> None:
    config = MaskedConfig(**pairs(folder, text_column="caption"))
    message = r"row 0 has no 'caption'; it has \['image', 'text'\]. Name .* objective.text_column"
    with pytest.raises(ConfigError, match=message):
        Masked.outline(config)
