"""RL of a network of diffusers, from the directory of a pipeline to another one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.task_config import TaskConfig
from mmrl.samplers import SamplerConfig
from tests.mmrl.pair import Pair
from tests.mmrl.runs import RED, metrics
from tests.mmrl.same_runs import close, equal_metrics
from tests.models.amused import write_amused

pytest.importorskip("diffusers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_amused(tmp_path_factory.mktemp("amused") / "pipeline")


def run_config(folder: Path, output: Path, model: dict[str, Any], **changes: Any) -> RLConfig:
    """Two steps on two prompts of four images, scored by how red they are."""
    prompts = output.parent / "prompts.jsonl"
    texts = ("a red cat", "a dog", "two birds", "a blue car")
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    task = TaskConfig(
        prompts=str(prompts),
        eval_prompts=str(prompts),
        num_prompts=2,
        num_generations=4,
        sampler=SamplerConfig(name="maskgit", steps=3, cfg_scale=2.0, annealing="linear"),
        rewards=[RED],
        algorithm=changes.pop("algorithm", {"name": "mask_grpo", "num_iterations": 2}),
    )
    values = {"model": ModelConfig(path=str(folder), **model), "tasks": {"images": task}}
    values |= {"output_dir": str(output), "per_device_train_batch_size": 4, "learning_rate": 1e-2}
    values |= {"warmup_steps": 0, "max_steps": 2, "save_steps": 1, "eval_steps": 2, "bf16": False}
    return RLConfig(**{**values, **changes})


SHARED: dict[str, dict[str, Any]] = {
    "all": {"algorithm": {"name": "mask_grpo", "num_iterations": 2, "beta": 0.1}},
    "lora": {
        "model": {"lora": LoraConfig(r=2), "gradient_checkpointing": True},
        "rollout_weights": "by_block",
    },
}
"""Runs of several processes: beside a frozen reference; and an adapter, with blocks that are
gathered in every forward pass and computed again in the backward pass."""


def main(arguments: Sequence[str]) -> int:
    """The runs of a process of those that share the network; arguments: its folder, and of runs."""
    for kind, changes in SHARED.items():
        options = dict(changes)
        model = {"dtype": "float64", **options.pop("model", {})}
        output = Path(arguments[1]) / kind
        output.parent.mkdir(exist_ok=True)
        config = run_config(Path(arguments[0]), output, model, adam_epsilon=1e-3, **options)
        train(config)
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sharing_pair", "zero3_pair"])
def test_two_processes_that_share_its_blocks_train_as_one(
    folder: Path, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    both: Pair = request.getfixturevalue(name)
    both.begin("tests.mmrl.test_amused_rl", [str(folder), str(tmp_path / "two")])
    main([str(folder), str(tmp_path / "one")])
    both.end()
    for kind in SHARED:
        one, two = (tmp_path / run / kind for run in ("one", "two"))
        equal_metrics(one, two)
        inside = "." if kind == "lora" else "transformer"
        close(one / "final" / inside, two / "final" / inside)
        assert all(line["grad_norm"] > 0 for line in metrics(two) if "loss" in line)
