"""Clips of the shapes world: true by the pixels, disjoint, readable, and learned as videos."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mmrl.objectives.flow import Flow
from mmrl.objectives.options import FlowConfig
from mmrl.rewards import build_reward
from mmrl.types import Sample, Video
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
load = partial(by_path.load, FOLDER)
render, prompts, motion = load("render"), load("prompts"), load("motion")
write, autoencoder = load("write_motion"), load("video_autoencoder")
load("tokenizer"), load("flow_pipeline")
pipeline = load("video_pipeline")
ROWS = motion.prompt_rows("test")[:12]


def scores(clips: list[np.ndarray], mode: str = "strict") -> list[float]:
    samples = [Sample(r["prompt"], Video(c), r) for r, c in zip(ROWS, clips, strict=True)]
    return build_reward({"name": "shapes_motion", "mode": mode})(samples)  # type: ignore[return-value]


def clips(still: bool = False) -> list[np.ndarray]:
    rng, draw = np.random.default_rng(0), motion.draw_clip
    return [np.array([np.asarray(f) for f in draw(r["include"], rng, still)]) for r in ROWS]


@pytest.mark.parametrize("split", motion.ROWS)
def test_the_committed_files_are_what_the_generator_writes(split: str) -> None:
    lines = (FOLDER / f"motion_{split}.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == motion.prompt_rows(split)
    others = [c for name in motion.ROWS if name != split for c in motion.split_compositions(name)]
    assert all(clauses not in others for clauses in motion.split_compositions(split))


def test_the_verifier_agrees_with_the_renderer() -> None:
    assert scores(clips()) == [1.0] * len(ROWS)
    wrong = clips(still=True), [c[::-1] for c in clips()], [255 - c for c in clips()]
    for found in wrong:  # nothing moves, all moves back, colours are others
        assert max(scores(found)) == 0.0
        assert max(scores(found, "partial")) < 1.0
    assert min(scores(clips(still=True), "partial")) > 0.5


def test_a_tiny_wan_reads_clips_and_its_autoencoder_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoencoder, "CLIPS", 200)
    start = pipeline.write(pipeline.Config(out=str(tmp_path), width=32, layers=1))
    pairs = tmp_path / "pairs.parquet"
    write.write_pairs(pairs, write.Config(out=str(tmp_path), pairs=4, still=50))
    sizes: dict[str, Any] = {"image_size": 32, "num_frames": 9, "max_prompt_length": 16}
    options = FlowConfig(
        data=str(pairs),
        model=str(start),
        new_weights=True,
        train_text_encoder=True,
        **sizes,
    )
    flow = Flow(options, seed=0, batch_size=4)
    batch = flow.batch(0, 0, 1)
    assert batch.velocity.shape == (4, 32, 9, 4, 4)
    flow.loss(batch)[0].backward()
    assert all(p.grad is not None for p in flow.module.parameters())
    pixels = torch.tensor(np.array(clips())).movedim(-1, 1) / 127.5 - 1
    parts, network = flow.task.parts, flow.task.network
    latents = parts.encode_images(pixels, network.from_encoder)
    assert scores(parts.decode_frames(latents, network.to_decoder)) == [1.0] * len(ROWS)
