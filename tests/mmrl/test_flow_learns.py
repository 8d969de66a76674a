"""The tiny latent model learns within a minute what a reward asks for, and a control does not."""

import json
from pathlib import Path

import pytest

from mmrl.config import load_config
from mmrl.rl import train
from mmrl.rl_config import RLConfig

ROOT = Path(__file__).resolve().parents[2]


def learn(folder: Path, *words: str) -> float:
    """How much brighter held-out images are after some steps."""
    options = ["num_prompts=6", "eval_limit=24", "rollout_batch_size=48"]
    given = [f"config={ROOT}/configs/rl/shapes_flow_brightness.yaml", f"output_dir={folder}"]
    given += [f"tasks.shapes.{each}" for each in (*options, *words)]
    given += ["max_steps=6", "eval_steps=6", "learning_rate=3e-4", "bf16=false"]
    run = train(load_config(RLConfig, [*given, "per_device_train_batch_size=24"]))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [x["eval/shapes/brightness"] for x in lines if "eval/shapes/brightness" in x]
    assert next(x["ratio"] for x in lines if "ratio" in x) == pytest.approx(1, abs=1e-3)
    return found[-1] - found[0]


@pytest.mark.slow
def test_images_become_brighter_where_that_is_rewarded_and_not_where_rewards_are_shuffled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    gain = learn(tmp_path / "run")
    control = learn(tmp_path / "control", "shuffle_advantages=true")
    assert gain > 0.05 and gain > control + 0.05
