"""Two short runs on sums: prompts with tags, two rewards, completions of every step."""

import json
from pathlib import Path

import pytest

from mmrl.config import load_config
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from tests.mmrl.runs import ROOT

PROMPTS = ROOT / "datasets" / "text" / "arithmetic_small_test.jsonl"
CONFIG = ROOT / "configs" / "rl" / "text_arithmetic.yaml"


def tagged_prompts(path: Path, count: int) -> str:
    """Prompts of the shipped file, each with the operation of its sum as a tag."""
    rows = [json.loads(line) for line in PROMPTS.read_text().splitlines()[:count]]
    names = {"*": "product", "-": "difference"}
    for row in rows:
        row["tag"] = next((tag for sign, tag in names.items() if sign in row["prompt"]), "sum")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="session")
def short_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two real runs of two steps, `slow` and `fast`, that differ in learning rate."""
    folder = tmp_path_factory.mktemp("short")
    prompts = tagged_prompts(folder / "prompts.jsonl", 12)
    for name, rate in (("slow", 0.1), ("fast", 0.2)):
        task = f"prompts: {prompts}, eval_prompts: {prompts}, num_prompts: 2, num_generations: 4"
        task += ", sampler: {steps: 6, temperature: 1.5}"  # so that completions of a prompt differ
        rewards = "[{name: math}, {name: format, mode: soft, weight: 0.5}]"
        words = [f"tasks.arithmetic={{{task}, rewards: {rewards}}}", "bf16=false"]
        words += [f"output_dir={folder / name}", f"learning_rate={rate}"]
        words += ["per_device_train_batch_size=8", "max_steps=2", "eval_steps=2", "save_steps=1"]
        train(load_config(RLConfig, [f"config={CONFIG}", *words]))
    return folder
