"""Supervised edits of images: rows as they are sampled, and a run from weights to rewards."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.models.layouts.text_to_image import ImageEdit
from mmrl.objectives.masked import Masked
from mmrl.objectives.options import EditsConfig, MaskedConfig
from mmrl.objectives.scored_rows import Rows
from mmrl.types import Prompt
from tests import by_path

SHAPES = Path(__file__).resolve().parents[3] / "datasets" / "shapes"
load = partial(by_path.load, SHAPES)
render, prompts = load("render"), load("prompts")
questions, edits = load("questions"), load("edits")
_, write = load("image_pairs"), load("write_edits")
CHECKPOINTS = {"model": str(SHAPES / "checkpoints/mmada"), "vq": str(SHAPES / "checkpoints/magvit")}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parquet of eight supervised edits."""
    path = tmp_path_factory.mktemp("edits") / "edit_pairs.parquet"
    write.write_pairs(path, write.pairs(8, 0))
    return path


def options(pairs: Path, **changes: Any) -> dict[str, Any]:
    shares = {"text_to_image": 0.0, "image_edit": 1.0}
    given = {"data": str(pairs), "image_size": 32, "max_prompt_length": 32, "shares": shares}
    return {**CHECKPOINTS, **given, "edits": EditsConfig(data=str(pairs)), **changes}


def rows_of(pairs: Path, **changes: Any) -> tuple[Masked, Rows]:
    masked = Masked(MaskedConfig(**options(pairs, **changes)), seed=0, batch_size=8)
    return masked, masked.batch(0, 0, 1)["image_edit"]


def canvas_rows(masked: Masked, drawn: Sequence[dict], name: str) -> list[list[int]]:
    """The rows of a canvas without padding, as a sampler gets them."""
    layout = masked.policy.layouts["image_edit"]
    assert isinstance(layout, ImageEdit)
    asked = [
        Prompt(row["prompt"], "image_edit", row["prompt"], images=[render.render(row["source"])])
        for row in drawn
    ]
    canvas = layout.canvas(asked)
    return [strip(row, layout.ids["pad"]) for row in getattr(canvas, name)]


def strip(row: torch.Tensor, pad: int) -> list[int]:
    ids = row.tolist()
    return ids[next(n for n, token in enumerate(ids) if token != pad) :]


@pytest.mark.parametrize(
    ("share", "name"), [(0.0, "tokens"), (1.0, None)], ids=["whole", "dropped"]
)
def test_edits_are_trained_as_they_are_sampled(pairs: Path, share: float, name: str | None) -> None:
    masked, rows = rows_of(pairs, cond_dropout_prob=share)
    drawn = edits.edit_rows("train", 8)
    pad, mask = masked.task.ids["pad"], masked.policy.mask_id
    found = [strip(row, pad) for row in torch.where(rows.weight > 0, mask, rows.ids)]
    assert bool(((rows.weight > 0) <= (rows.targets >= masked.task.vocab[0])).all())
    n = 64
    if name is None:  # neither text nor source image
        ids = masked.task.ids
        assert {tuple(row[: -n - 2]) for row in found} == {(ids["t2i"], ids["bos"], ids["eos"])}
        return
    sampled = {tuple(row[: -n - 1]) for row in canvas_rows(masked, drawn, name)}
    assert {tuple(row[: -n - 1]) for row in found} == sampled
    targets = {tuple(row.tolist()) for row in rows.targets[:, -n - 1 : -1]}
    images = [render.render(row["target"]) for row in drawn]
    shown = [Prompt("x", "image_edit", "x", images=[image]) for image in images]
    layout = masked.policy.layouts["image_edit"]
    assert isinstance(layout, ImageEdit)
    assert targets == {tuple(own.flatten().tolist()) for [own] in layout._encode(shown)}


def test_text_and_source_are_dropped_apart(pairs: Path) -> None:
    masked = Masked(MaskedConfig(**options(pairs, cond_dropout_prob=0.5)), 0, batch_size=8)
    ids, kinds = masked.task.ids, set()
    for step in range(8):
        for row in masked.batch(step, 0, 1)["image_edit"].ids:
            before = strip(row, ids["pad"])[:-66]
            text = len(before) - 3 - 66 * (ids["soi"] in before)
            kinds.add((ids["soi"] in before, text > 0))
    assert kinds == {(False, False), (False, True), (True, False), (True, True)}
