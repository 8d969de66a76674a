"""A short run on sums: two rewards, completions of every step."""

from pathlib import Path

import pytest

from mmrl.config import load_config
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from tests.mmrl.runs import ROOT

PROMPTS = ROOT / "datasets" / "text" / "arithmetic_small_test.jsonl"
CONFIG = ROOT / "configs" / "rl" / "text_arithmetic.yaml"


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two steps."""
    folder = tmp_path_factory.mktemp("short")
    lines = PROMPTS.read_text().splitlines(keepends=True)
    (folder / "prompts.jsonl").write_text("".join(lines[:12]))
    prompts = folder / "prompts.jsonl"
    task = f"prompts: {prompts}, eval_prompts: {prompts}, num_prompts: 2, num_generations: 4"
    task += ", sampler: {steps: 6, temperature: 1.5}"  # so that completions of a prompt differ
    rewards = "[{name: math}, {name: format, mode: soft, weight: 0.5}]"
    words = [f"tasks.arithmetic={{{task}, rewards: {rewards}}}", "bf16=false"]
    words += [f"output_dir={folder / 'run'}", "per_device_train_batch_size=8"]
    words += ["max_steps=2", "eval_steps=2", "save_steps=1"]
    return train(load_config(RLConfig, [f"config={CONFIG}", *words]))
