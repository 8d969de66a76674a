"""Runs of the loop that take a second: an untrained policy of two blocks on prompts of shapes."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from mmrl.models import load_policy, load_vq
from mmrl.models.loading import new_model
from mmrl.objectives.masked import outline_start
from mmrl.objectives.options import MaskedConfig
from mmrl.pretrained.model_config import LoraConfig, ModelConfig, policy_options
from mmrl.randomness import generator
from mmrl.rl_config import RLConfig
from mmrl.rollouts.rollout import RolloutBatch, sample_groups, score_groups
from mmrl.rollouts.tasks import Task, TaskConfig
from mmrl.run.checkpoint import checkpoint_steps
from mmrl.run.run_directory import RunDirectory
from mmrl.samplers import SamplerConfig
from mmrl.training.trainer import Trainer
from mmrl.types import Sample
from tests.mmrl.starts import write_drawing

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ROOT / "datasets" / "shapes"
ACCELERATE = ROOT / "configs" / "accelerate"
VQ = str(SHAPES / "checkpoints" / "magvit")
LORA = {"r": 4, "lora_alpha": 8}


@dataclass(frozen=True)
class World:
    """Paths of a policy and of prompt files."""

    policy: str
    prompts: str
    held_out: str = ""


def write_world(folder: Path, width: int = 32) -> World:
    """A tiny policy and prompt files."""
    options = MaskedConfig(
        data="-",
        model=write_drawing(folder / "start", width, 2 * width),
        new_weights=True,
        vq=VQ,
        image_size=32,
        max_prompt_length=24,
    )
    policy = outline_start(options, load_vq(VQ))
    draw = generator(0, "initial weights")
    policy.network = policy.model = new_model(policy.network.public_config, draw).train()
    for name, parameter in policy.network.named_parameters():
        if parameter.ndim == 2 and "embed" not in name:
            parameter.data *= 4.0  # far from uniform, so that errors show
    policy.save(folder / "policy")
    lines = (SHAPES / "train.jsonl").read_text().splitlines(keepends=True)
    (folder / "prompts.jsonl").write_text("".join(lines[::400]))
    (folder / "held_out.jsonl").write_text("".join(lines[1::600]))
    return world_in(folder)


def world_in(folder: Path) -> World:
    """The paths of what `write_world` wrote into a folder."""
    names = ("policy", "prompts.jsonl", "held_out.jsonl")
    return World(*(str(folder / name) for name in names))


def redness(samples: list[Sample]) -> list[float]:
    """Mean of the red channel, in [0, 1]."""
    return [float(_red(sample)) for sample in samples]


def _red(sample: Sample) -> float:
    red = sample.completion.getchannel("R").histogram()  # type: ignore[union-attr]
    return sum(n * count for n, count in enumerate(red)) / 255 / sum(red)


def glow(samples: list[Sample], pixels: Sequence[Tensor]) -> Tensor:
    """Mean of the red channel, in [0, 1], with its gradient."""
    return torch.stack([image[0].mean() for image in pixels])


def vowels(samples: list[Sample]) -> list[float]:
    """Share of vowels in texts, in [0, 1]; fails on anything but text."""
    return [sum(letter in "aeiou" for letter in str(each.completion)) / 40 for each in samples]


RED = {"name": "redness", "reward": redness}


def task_config(world: World, **changes: Any) -> TaskConfig:
    """Two prompts of four images, three denoising steps, scored by how red they are."""
    values = {"prompts": world.prompts, "num_prompts": 2, "num_generations": 4}
    values |= {"sampler": SamplerConfig(steps=3), "rewards": [RED]}
    return TaskConfig(**{**values, **changes})


def run_config(world: World, output: Path, **changes: Any) -> RLConfig:
    """Settings of a run, in float32 on every machine; `algorithm`, `lora` and `task` are put where
    they belong."""
    algorithm = {"name": "mask_grpo", "num_iterations": 2, **changes.pop("algorithm", {})}
    lora = changes.pop("lora", None)
    own = {"path": world.policy, "vq": VQ, "max_prompt_length": 24, **changes.pop("model", {})}
    model = ModelConfig(lora=None if lora is None else LoraConfig(**lora), **own)
    task = task_config(world, algorithm=algorithm, **changes.pop("task", {}))
    values = {"model": model, "tasks": {"shapes": task}, "per_device_train_batch_size": 4}
    values |= {"learning_rate": 1e-3, "max_steps": 4, "save_steps": 2, "bf16": False}
    return RLConfig(output_dir=str(output), **{**values, **changes})


def command_line(world: World, output: Path) -> list[str]:
    """The words of a run with the shapes reward, for processes of their own."""
    task = "tasks.shapes"
    return (
        [f"output_dir={output}", f"model.path={world.policy}", f"model.vq={VQ}"]
        + ["model.max_prompt_length=24", f"{task}.prompts={world.prompts}"]
        + [f"{task}.num_prompts=2", f"{task}.num_generations=4", f"{task}.sampler.steps=3"]
        + [f"{task}.rewards=[{{name: shapes, mode: partial}}]"]
        + [f"{task}.algorithm={{num_iterations: 2}}", "per_device_train_batch_size=4"]
        + ["learning_rate=1e-3", "bf16=false"]
    )


def trainer_of(config: RLConfig) -> Trainer:
    """A trainer on a policy freshly loaded."""
    accelerator = Accelerator(cpu=True, mixed_precision="no")
    return Trainer(config, load_policy(**policy_options(config.model)), accelerator)


def roll_out(
    task: Task, policy: Any, step: int, seed: int, rank: int, world_size: int
) -> RolloutBatch:
    """Sample and score the groups of one step."""
    return score_groups(sample_groups(task, policy, step, seed, rank, world_size))


def rollouts(config: RLConfig, trainer: Trainer) -> dict[str, tuple[Task, RolloutBatch]]:
    """The scored rollouts of the trainer's next step."""
    work = {}
    for name, options in config.tasks.items():
        task = Task(name, options)
        batch = roll_out(task, trainer.policy, trainer.step, config.seed, 0, 1)
        work[name] = (task, batch)
    return work


def metrics(output: Path) -> list[dict[str, float]]:
    """The metrics of a run without those that measure time or depend on it."""
    timed = ("time/", "perf/", "step_time", "/time_s")
    lines = RunDirectory(output).read_metrics()
    return [
        {k: v for k, v in line.items() if not any(part in k for part in timed)} for line in lines
    ]


def same_weights(one: Path, other: Path) -> bool:
    """Whether two directories of models or adapters hold the same tensors, bit by bit."""
    left, right = (load_file(*folder.glob("*model.safetensors")) for folder in (one, other))
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def same_pictures(one: bytes, other: bytes) -> bool:
    """Whether two PNG files show the same: decoding rounds, so a channel may differ by one level.

    Tokens are equal, but the image tokenizer sums float32 in another order when other images are
    decoded beside one.
    """
    left, right = (np.array(Image.open(io.BytesIO(png)), dtype=int) for png in (one, other))
    return left.shape == right.shape and int(abs(left - right).max()) <= 1


def loadable(run: Path) -> list[int]:
    """Steps of the checkpoints of a run, every one of which loads as a policy."""
    steps = checkpoint_steps(run / "checkpoints")
    for step in steps:
        load_policy(run / "checkpoints" / str(step), VQ)
    return steps


def process(words: list[str]) -> subprocess.Popen:
    """A run in a process of its own, on one thread."""
    return module_process("mmrl.rl", words)


def launcher(settings: Path) -> tuple[str, ...]:
    """The words before a module that accelerate launches."""
    return ("accelerate.commands.launch", "--config_file", str(settings), "-m")


def module_process(module: str, words: list[str], *launcher: str, **streams: Any) -> Any:
    """A module in a process of its own, on one thread; `streams` are those of `Popen`."""
    command = [sys.executable, "-m", *launcher, module, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    streams = streams or {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **streams)


def wait_for(path: Path, running: subprocess.Popen) -> None:
    """Wait until a running process has written a file; it is slow to start on a busy machine."""
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if path.exists():
            return
        assert running.poll() is None, (running.communicate()[1] or b"").decode()
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")
