"""The loop on a policy that denoises latents: first ratios, processes, micro-batches, resume."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import T5EncoderModel

from mmrl import rl
from tests.mmrl.pair import Pair
from tests.mmrl.runs import metrics, same_weights
from tests.mmrl.same_runs import close, equal_metrics
from tests.models.flow import LENGTH, PIPELINE

TASK = "tasks.shapes"
LORA = "model.lora={r: 4, target_modules: [q, k, v, o]}"
METHODS = {
    "all": [f"{TASK}.sampler.name=flow", f"{TASK}.algorithm.beta=0.04"],
    "lora": [
        LORA,
        f"{TASK}.sampler={{name: cps, steps: 3, window_size: 1, cfg_scale: 1.5}}",
        f"{TASK}.algorithm.cfg_scale=1.5",
        f"{TASK}.algorithm.beta=0.04",
    ],
}


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six prompts."""
    path = tmp_path_factory.mktemp("flow") / "prompts.jsonl"
    lines = Path("datasets/shapes/train.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:12:2]))
    return path


def words(prompts: Path, out: Path, *more: str) -> list[str]:
    """A short run in which redder images are better."""
    method = "{name: grpo, strategy: replay, kl: gaussian_rate, adv_clip_max: 5, epsilon: 0.01}"
    return [
        f"output_dir={out}",
        f"model.path={PIPELINE}",
        f"model.max_prompt_length={LENGTH}",
        "model.image_size=32",
        f"{TASK}.prompts={prompts}",
        f"{TASK}.num_prompts=2",
        f"{TASK}.num_generations=4",
        f"{TASK}.sampler={{name: flow, steps: 3}}",
        f"{TASK}.rewards=[{{name: 'tests/mmrl/runs.py:redness'}}]",
        f"{TASK}.algorithm={method}",
        "per_device_train_batch_size=2",
        "learning_rate=1e-3",
        "adam_epsilon=1e-3",
        "max_steps=2",
        "save_steps=1",
        "bf16=false",
        "model.dtype=float64",
        *more,
    ]


def run(prompts: Path, out: Path, *more: str) -> Path:
    assert rl.main(words(prompts, out, *more)) == 0
    return out


def starts_at_one(out: Path) -> None:
    """Assert that the first update compares the policy with itself."""
    first = metrics(out)[0]
    assert first[f"{TASK[6:]}/ratio"] == 1 if f"{TASK[6:]}/ratio" in first else first["ratio"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("changes", METHODS.values(), ids=METHODS)
def test_two_processes_micro_batches_and_a_resumed_run_are_one(
    prompts: Path, tmp_path: Path, pair: Pair, changes: Sequence[str]
) -> None:
    changes = [*changes, "num_mini_batches=2"]
    pair.begin("mmrl.rl", words(prompts, tmp_path / "two", *changes))
    one = run(prompts, tmp_path / "one", *changes)
    pair.end()
    for out in (one, tmp_path / "two"):
        print(metrics(out)[0])
    equal_metrics(one, tmp_path / "two")
    close(one / "final" , tmp_path / "two" / "final")
