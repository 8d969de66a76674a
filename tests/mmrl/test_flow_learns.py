"""The shipped run of a minute learns what its reward asks for, and its control does not."""

from pathlib import Path

import pytest

from mmrl import rl
from tests.mmrl.runs import metrics

TASK = "tasks.shapes"
SHORT = ("config=configs/rl/shapes_flow_brightness.yaml", "max_steps=6", "eval_steps=6")
SHORT += (f"{TASK}.num_prompts=6", f"{TASK}.rollout_batch_size=48", f"{TASK}.eval_limit=24")
SHORT += ("per_device_train_batch_size=24", "learning_rate=3e-4", "bf16=false")


def learn(folder: Path, *words: str) -> float:
    """How much brighter held-out images are after six steps."""
    assert rl.main([*SHORT, f"output_dir={folder}", *words]) == 0
    key = "eval/shapes/brightness"
    first, last = (line[key] for line in metrics(folder) if key in line)
    return last - first


@pytest.mark.slow
def test_held_out_images_become_brighter_if_that_is_rewarded_and_not_if_rewards_are_shuffled(
    tmp_path: Path,
) -> None:
    gain = learn(tmp_path / "run")
    control = learn(tmp_path / "control", f"{TASK}.shuffle_advantages=true")
    assert gain > 0.05 and gain > control + 0.05
