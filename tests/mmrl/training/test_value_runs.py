"""Whole runs with a value model: checkpoints and resume, several tasks and processes, text."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from mmrl.config import ConfigError
from mmrl.models import load_policy
from mmrl.rl import train
from tests.mmrl.pair import Pair
from tests.mmrl.runs import (
    LORA,
    SHAPES,
    VQ,
    command_line,
    metrics,
    same_weights,
)
from tests.mmrl.training.test_value_model import BACKBONES, config_of, method, slow


@pytest.mark.parametrize(
    ("backbone", "lora"), [slow("shared", None), slow("copy", None), slow("copy", LORA)]
)
def test_four_steps_equal_two_a_stop_and_two_more(
    world: SimpleNamespace, tmp_path: Path, backbone: str, lora: dict | None
) -> None:
    changes = {
        "algorithm": {**method(backbone, lam=0.9), "num_iterations": 2},
        "lora": lora,
        "bf16": lora is None,
        "save_total_limit": None,
        "warmup_steps": 3,
    }
    train(config_of(world, tmp_path / "whole", **changes))
    train(config_of(world, tmp_path / "parts", max_steps=2, **changes))
    train(config_of(world, tmp_path / "parts", resume_from_checkpoint="auto", **changes))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    for name in ("final", "checkpoints/4", "checkpoints/4/value"):
        assert same_weights(tmp_path / "parts" / name, tmp_path / "whole" / name)
    lines = metrics(tmp_path / "whole")
    assert lines[-1]["val/mean"] != 0 and len({line["loss/value_avg"] for line in lines}) == 4


@BACKBONES
def test_a_checkpoint_has_the_value_model_beside_it_and_the_final_model_is_the_policy_alone(
    world: SimpleNamespace, tmp_path: Path, backbone: str
) -> None:
    config = config_of(world, tmp_path / "run", method(backbone), max_steps=2)
    run = train(config)
    start = load_file(Path(world.policy) / "model.safetensors")
    for name in ("final", "checkpoints/2"):
        assert load_file(run / name / "model.safetensors").keys() == start.keys()
        assert load_policy(run / name, VQ).network.value_head is None
    stored = load_file(run / "checkpoints" / "2" / "value" / "model.safetensors")
    wanted = "weight" if backbone == "shared" else "head.weight"
    assert bool(stored[wanted].any())
    assert (len(stored) == 1) == (backbone == "shared")
    assert not (run / "final" / "value").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [("shared", "copy"), slow("copy", "shared"), slow("copy", None), (None, "shared")],
)
def test_a_checkpoint_with_another_value_model_is_refused(
    world: SimpleNamespace, tmp_path: Path, before: str | None, after: str | None
) -> None:
    train(config_of(world, tmp_path / "run", method(before), max_steps=2))
    resumed = {"max_steps": 4, "resume_from_checkpoint": "auto"}
    with pytest.raises(ConfigError, match="algorithm.value"):
        train(config_of(world, tmp_path / "run", method(after), **resumed))


@pytest.mark.parametrize("backbone", [slow("shared"), "copy"])
def test_a_task_without_it_trains_beside_one_with_it_on_one_or_two_processes(
    world: SimpleNamespace, pair: Pair, tmp_path: Path, backbone: str
) -> None:
    value = f"{{name: trace_rl, slice_size: 1, num_iterations: 2, value: {{backbone: {backbone}}}}}"
    reward = f"rewards=[{{name: clip, model: '{SHAPES / 'checkpoints' / 'clip'}'}}]"
    other = [
        f"tasks.other.{word}"
        for word in (
            f"prompts={world.prompts}",
            "num_prompts=2",
            "num_generations=2",
            "sampler.steps=3",
            reward,
            "algorithm={num_iterations: 2}",
        )
    ]
    common = [
        *other,
        "max_steps=2",
        "save_steps=1",
        "learning_rate=1e-4",
        "adam_epsilon=1e-3",
        "per_device_train_batch_size=2",
        f"tasks.shapes.algorithm={value}",
        f"tasks.shapes.{reward}",
    ]
    pair.same_as_one(tmp_path, [*command_line(world, tmp_path), *common])
    for line in metrics(tmp_path / "one"):
        assert line["shapes/loss/value_avg"] > 0 and "other/loss/value_avg" not in line
    for name in ("final/model.safetensors", "checkpoints/2/value/model.safetensors"):
        left, right = (load_file(tmp_path / run / name) for run in ("one", "two"))
        for key, tensor in left.items():
            torch.testing.assert_close(right[key], tensor, atol=1e-6, rtol=0)
