"""Images drawn, images asked about and words alone, trained together on one policy."""

import json
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file

from mmrl.data.prompts import DataConfig
from mmrl.pretrained.model_config import ModelConfig
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import TaskConfig
from mmrl.samplers import SamplerConfig
from mmrl.types import Sample
from tests.mmrl.runs import RED, SHAPES, VQ, metrics

TASKS = {"drawn": "text_to_image", "asked": "image_to_text", "read": "text"}
WRITER = SamplerConfig(name="static", steps=4)


def lengths(samples: list[Sample]) -> list[float]:
    return [float(len(str(sample.completion))) for sample in samples]


@pytest.fixture(scope="module")
def prompts(world: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A prompt file for every task."""
    folder = tmp_path_factory.mktemp("prompts")
    with (SHAPES / "questions_train.jsonl").open() as lines:
        (folder / "asked.jsonl").write_text("".join(islice(lines, 0, None, 400)))
    rows = [{"prompt": "a red circle", "answer": "red"}, {"prompt": "two", "answer": "two"}]
    (folder / "read.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"drawn": world.prompts, **{n: str(folder / f"{n}.jsonl") for n in ("asked", "read")}}


def mixed(world: SimpleNamespace, prompts: dict[str, str], output: Path) -> RLConfig:
    """Two steps of two prompts with two rollouts each of every task."""
    text: dict[str, Any] = {
        "sampler": WRITER,
        "max_completion_length": 8,
        "rewards": [{"name": "length", "reward": lengths}],
    }
    own: dict[str, dict[str, Any]] = {
        "drawn": {"sampler": SamplerConfig(steps=3), "rewards": [RED]},
        "asked": {**text, "data": DataConfig(format="dllm_rl"), "algorithm": {"name": "unigrpo"}},
        "read": {**text, "algorithm": {"name": "coupled_grpo"}},
    }
    tasks = {
        name: TaskConfig(
            task=task,
            prompts=prompts[name],
            eval_prompts=prompts[name],
            eval_limit=2,
            num_prompts=2,
            num_generations=2,
            **{**own[name], "algorithm": {"num_iterations": 1, **own[name].get("algorithm", {})}},
        )
        for name, task in TASKS.items()
    }
    return RLConfig(
        output_dir=str(output),
        model=ModelConfig(path=world.policy, vq=VQ, max_prompt_length=64),
        tasks=tasks,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        max_steps=2,
        save_steps=0,
        eval_steps=2,
        bf16=False,
    )


def test_three_tasks_train_one_policy_and_each_has_its_metrics(
    world: SimpleNamespace, prompts: dict[str, str], tmp_path: Path
) -> None:
    run = train(mixed(world, prompts, tmp_path))
    lines = metrics(run)
    updates = [line for line in lines if "loss" in line]
    assert [line["step"] for line in updates] == [1, 2]
    for line in updates:
        assert line["grad_norm"] > 0
        for name in TASKS:
            assert {f"{name}/reward", f"{name}/reward_std", f"{name}/ratio"} <= line.keys()
            assert line[f"{name}/ratio"] == pytest.approx(1.0, abs=1e-6)
        assert {"asked/completions/mean_length", "read/completions/mean_length"} <= line.keys()
        assert "drawn/completions/mean_length" not in line
    for score in ("drawn/redness", "asked/length", "read/length"):
        assert [line["step"] for line in lines if f"eval/{score}" in line] == [0, 2]
    before, after = (
        load_file(Path(p) / "model.safetensors") for p in (world.policy, run / "final")
    )
    assert any((before[key].float() != after[key].float()).any() for key in before)
