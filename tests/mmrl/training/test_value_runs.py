"""Whole runs with a value model: checkpoints and resume, several tasks and processes, text."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mmrl.models import load_policy
from mmrl.rl import train
from tests.mmrl.pair import Pair
from tests.mmrl.runs import LORA, SHAPES, VQ, World, command_line, metrics, same_weights
from tests.mmrl.training.test_value_model import config_of, method


def value_of(checkpoint: Path) -> dict[str, Tensor]:
    """The trained tensors of a value model."""
    _, value = torch.load(checkpoint / "trainer_state.pt", weights_only=True)["trained"]
    return value


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LORA])
def test_four_steps_equal_two_a_stop_and_two_more(
    world: World, tmp_path: Path, lora: dict | None
) -> None:
    changes = {"algorithm": {**method(lam=0.9), "num_iterations": 2}, "lora": lora}
    changes |= {"bf16": lora is None, "save_total_limit": None, "warmup_steps": 3}
    train(config_of(world, tmp_path / "whole", **changes))
    train(config_of(world, tmp_path / "parts", max_steps=2, **changes))
    train(config_of(world, tmp_path / "parts", resume_from_checkpoint="auto", **changes))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    for name in ("final", "checkpoints/4"):
        assert same_weights(tmp_path / "parts" / name, tmp_path / "whole" / name)
    one, other = (value_of(tmp_path / run / "checkpoints" / "4") for run in ("parts", "whole"))
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    lines = metrics(tmp_path / "whole")
    assert lines[-1]["val/mean"] != 0 and len({line["loss/value_avg"] for line in lines}) == 4


def test_a_checkpoint_has_the_value_model_in_its_state_and_the_final_model_is_the_policy_alone(
    world: World, tmp_path: Path
) -> None:
    config = config_of(world, tmp_path / "run", method(), max_steps=2)
    run = train(config)
    start = load_file(Path(world.policy) / "model.safetensors")
    for name in ("final", "checkpoints/2"):
        assert load_file(run / name / "model.safetensors").keys() == start.keys()
        load_policy(run / name, VQ)
    stored = value_of(run / "checkpoints" / "2")
    assert bool(stored["head.weight"].any()) and len(stored) > 1


def test_a_task_without_it_trains_beside_one_with_it_on_one_or_two_processes(
    world: World, pair: Pair, tmp_path: Path
) -> None:
    value = "{name: trace_rl, slice_size: 1, num_iterations: 2, value: {}}"
    reward = f"rewards=[{{name: clip, model: '{SHAPES / 'checkpoints' / 'clip'}'}}]"
    other = f"prompts={world.prompts} num_prompts=2 num_generations=2 sampler.steps=3".split()
    other += [reward, "algorithm={num_iterations: 2}"]
    common = ["max_steps=2", "save_steps=1", "learning_rate=1e-4", "adam_epsilon=1e-3"]
    common += ["per_device_train_batch_size=2", f"tasks.shapes.algorithm={value}"]
    common += [f"tasks.shapes.{reward}", *(f"tasks.other.{word}" for word in other)]
    pair.same_as_one(tmp_path, [*command_line(world, tmp_path), *common])
    for line in metrics(tmp_path / "one"):
        assert line["shapes/loss/value_avg"] > 0 and "other/loss/value_avg" not in line
    for read, name in ((load_file, "final/model.safetensors"), (value_of, "checkpoints/2")):
        left, right = (read(tmp_path / run / name) for run in ("one", "two"))
        torch.testing.assert_close(right, left, atol=1e-6, rtol=0)
