"""Clips of the shapes world: true by the pixels, disjoint, readable, and learned as videos."""

import json
from pathlib import Path

import numpy as np
import torch

from mmrl.objectives.flow import Flow
from mmrl.objectives.options import FlowConfig
from mmrl.rewards import build_reward
from mmrl.types import Sample, Video
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
for name in ("render", "prompts", "tokenizer", "flow_pipeline"):
    by_path.load(FOLDER, name)
NAMES = ("motion", "image_pairs", "write_motion")
motion, _, write = (by_path.load(FOLDER, name) for name in NAMES)
_, pipeline = (by_path.load(FOLDER, f"video_{name}") for name in ("autoencoder", "pipeline"))
ROWS = motion.prompt_rows("test")[:12]


def scores(clips: list[np.ndarray], mode: str = "strict") -> list[float]:
    samples = [Sample(r["prompt"], Video(c), r) for r, c in zip(ROWS, clips, strict=True)]
    return [*map(float, build_reward({"name": "shapes_motion", "mode": mode})(samples))]


def clips(still: bool = False) -> list[np.ndarray]:
    rng, draw = np.random.default_rng(0), motion.draw_clip
    return [np.array([np.asarray(f) for f in draw(r["include"], rng, still)]) for r in ROWS]


def test_the_committed_files_are_what_the_generator_writes() -> None:
    for split in motion.ROWS:
        lines = (FOLDER / f"motion_{split}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == motion.prompt_rows(split)
    dealt = [str(clauses) for split in motion.ROWS for clauses in motion.split_compositions(split)]
    assert len(set(dealt)) == len(dealt) == len(motion.compositions())


def test_the_verifier_agrees_with_the_renderer() -> None:
    assert scores(clips()) == [1.0] * len(ROWS)
    for found in (clips(still=True), [c[::-1] for c in clips()], [255 - c for c in clips()]):
        assert max(scores(found)) == 0.0 and max(scores(found, "partial")) < 1.0


def test_a_tiny_wan_reads_clips_and_its_autoencoder_keeps_them(tmp_path: Path) -> None:
    folder, pairs = str(tmp_path), tmp_path / "pairs.parquet"
    pipeline.write(pipeline.Config(out=folder, width=32, layers=1))
    write.write_pairs(pairs, write.draw_pairs(write.Config(out=folder, pairs=4, still=50)))
    options = FlowConfig(data=str(pairs), model=folder, image_size=32, num_frames=9)
    options.new_weights, options.train_text_encoder, options.max_prompt_length = True, True, 16
    flow = Flow(options, seed=0, batch_size=4)
    flow.loss(flow.batch(0, 0, 1))[0].backward()
    assert all(p.grad is not None for p in flow.module.parameters())
    pixels = torch.tensor(np.array(clips())).movedim(-1, 1) / 127.5 - 1
    parts, network = flow.task.parts, flow.task.network
    latents = parts.encode_images(pixels, network.from_encoder)
    found = parts.decode_frames(latents, network.to_decoder)
    assert scores(found) == [1.0] * len(ROWS)
