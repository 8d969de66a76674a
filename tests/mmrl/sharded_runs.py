"""Tiny runs of both trainers, for one process and for several that accelerate launches.

`main` is what `tests.mmrl.pair` calls.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl import rl, sft
from mmrl.config import ConfigError
from mmrl.generation.masked.samplers.denoise import BlockNetwork
from mmrl.objectives.masked import Masked
from mmrl.rollouts.rollout import sample_groups
from mmrl.run.checkpoint import checkpoint_steps
from mmrl.samplers import SamplerConfig
from mmrl.training.trainer import Trainer
from tests.mmrl.runs import LORA, RED, VQ, World, run_config, vowels, world_in
from tests.mmrl.starts import write_drawing
from tests.pictures import write_images

TRACE = {"name": "trace_rl", "slice_size": 1}
ASKING = [RED, {"name": "cycle", "max_completion_length": 2, "batch_size": 1}]
"""Of the first run: a reward that asks the policy, question by question."""
RL = {
    "full": {"algorithm": {"beta": 0.1}, "num_mini_batches": 2, "per_device_train_batch_size": 2},
    "lora": {"algorithm": {"beta": 0.1}, "lora": LORA}
    | {"model": {"gradient_checkpointing": True}, "optimizer": "sgd", "learning_rate": 0.1},
    "value": {"algorithm": {**TRACE, "value": {}}, "lora": LORA},
    "following": {"algorithm": {**TRACE, "beta": 0.1, "value": {"learning_rate_scale": 2.0}}}
    | {"num_mini_batches": 2, "per_device_train_batch_size": 2, "sync_ref_model": True}
    | {"ref_model_sync_steps": 2, "max_grad_norm": 0.01},
    "text": {
        "algorithm": {"beta": 0.1},
        "rollout_weights": "by_block",
        "task": {"task": "text", "sampler": SamplerConfig(name="static", steps=4, block_size=4)}
        | {"max_completion_length": 8, "rewards": [{"name": "vowels", "reward": vowels}]},
    },
}
"""Runs of four steps: a frozen reference and mini-batches, one with the adapter off and another
optimiser; a value model that shares the frozen weights of the policy; a reference that follows the
policy, and a value model with all weights and a gradient that is clipped apart; texts, whose
forward passes are as many on every process, so that weights that are gathered by block need no
agreement."""
HELD = ("text",)
"""Kinds in which a process that is told to stop goes on to the end of the rollouts, because the
others wait for it in every forward pass."""
STOPPED = {"fsdp2": "full", "zero2": "following", "zero3": "text"}
"""The kind, of each way of sharding, of which one run more is stopped on the way, twice."""
KINDS = {
    "fsdp2": ("full", "lora", "value", "text"),
    "zero2": ("following",),
    "zero3": ("following", "lora", "value", "text"),
}
"""Those of each way of sharding."""
BATCH = Masked.batch


def reinforce(world: World, output: Path, kind: str, **changes: Any) -> Path:
    """A run of `RL`, evaluated on three prompts one by one: one more on one process of two."""
    task = {"eval_prompts": world.held_out, "eval_limit": 3, "rollout_batch_size": 1}
    task["rewards"] = ASKING if kind == "full" else [RED]
    task |= {**RL[kind].get("task", {}), **changes.pop("task", {})}
    # a large epsilon: where a gradient is nearly zero, Adam would follow the sign of its rounding
    values = {"task": task, "eval_steps": 2, "adam_epsilon": 1e-3, "save_total_limit": None}
    config = run_config(world, output, **{**RL[kind], **values, **changes})
    config.model.max_prompt_length = 64  # of questions
    config.model.dtype = "float64"  # the same tokens, however many rows a process samples at once
    return rl.train(config)


def reinforce_stopped(world: World, output: Path, kind: str) -> None:
    """A run of which one process gets SIGINT as it scores, the other SIGTERM later in rollouts."""
    scoring = 1, 1, signal.SIGINT, Trainer, "_score"
    sampling = 0, 2, signal.SIGTERM, BlockNetwork, "__call__"
    for rank, step, number, place, name in (scoring, sampling):
        STEP[0] = 0
        AFTER.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mmrl.rollouts.chain.sample_groups", noting_step(sample_groups))
            patch.setattr(place, name, stopping(getattr(place, name), rank, step, number))
            with pytest.raises(KeyboardInterrupt):
                reinforce(world, output, kind, resume_from_checkpoint="auto")
        assert max(checkpoint_steps(output / "checkpoints")) == step
    assert bool(AFTER) == (kind in HELD and int(os.environ["RANK"]) == rank)
    reinforce(world, output, kind, resume_from_checkpoint="auto")


STEP = [0]
"""Of the run that goes on; -1 once this process was told to stop."""
AFTER: list[str] = []
"""Calls that this process has made since then."""


def noting_step(original: Callable) -> Callable:
    """`sample_groups` that says which step it is."""

    def sampling(task: Any, policy: Any, step: int, *rest: Any, **chosen: Any) -> Any:
        STEP[0] = step
        return original(task, policy, step, *rest, **chosen)

    return sampling


def stopping(original: Callable, rank: int, step: int, number: signal.Signals) -> Callable:
    """A function that on one process and in one step gets a signal."""

    def called(*arguments: Any) -> Any:
        if STEP[0] == -1:
            AFTER.append(original.__qualname__)
        if int(os.environ["RANK"]) == rank and STEP[0] == step:
            os.kill(os.getpid(), number)
            STEP[0] = -1
        return original(*arguments)

    return called


def supervise(world: World, output: Path, **changes: Any) -> bool:
    """Four steps of the masked objective on four examples each; averaged weights are saved."""
    objective = {"name": "masked", "data": str(pairs(world))}
    objective |= {"model": write_drawing(Path(world.prompts).with_name("start"))}
    objective |= {"new_weights": True, "vq": VQ, "image_size": 32, "max_prompt_length": 24}
    objective |= {"save_dtype": "float32"}
    values = {"max_steps": 4, "save_steps": 2, "logging_steps": 1, "per_device_train_batch_size": 2}
    values |= {"eval_steps": 2, "learning_rate": 1e-3, "ema_decay": 0.5, "adam_epsilon": 1e-3}
    values |= {"save_total_limit": None, "bf16": False}
    config = sft.SFTConfig(output_dir=str(output), objective=objective, **{**values, **changes})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Masked, "evaluate", loss_of_one_batch)
        return sft.train(config)


def loss_of_one_batch(self: Masked, directory: Path, step: int) -> dict[str, float]:
    """An evaluation that asks the network, on rank 0 alone."""
    loss, _ = self.loss(BATCH(self, 100, 0, 2))
    return {"eval/loss": float(loss)}


def pairs(world: World) -> Path:
    """A parquet of eight plain images with prompts, beside the prompt file."""
    path = Path(world.prompts).with_name("pairs.parquet")
    if not path.exists():
        colors = np.random.default_rng(0).integers(0, 256, (8, 3), dtype=np.uint8)
        pictures = [Image.new("RGB", (32, 32), tuple(color.tolist())) for color in colors]
        write_images(path, pictures, [f"a plain image {n}" for n in range(8)])
    return path


def reconstruct(world: World, output: Path) -> bool:
    """Training of an image tokenizer, which has no block of the core."""
    data = str(pairs(world))
    objective = {"name": "scripts.miniature:VQ", "data": data, "image_size": 32, "vq": VQ}
    return sft.train(sft.SFTConfig(output_dir=str(output), objective=objective, max_steps=1))


def main(arguments: list[str]) -> int:
    """Runs of a kind of `RL`, or `sft`: whole, from its checkpoint in the middle, and from that of
    one process.

    Args:
        arguments: folder of the world, folder for the runs, folder of those alone, and the kind.
    """
    world, output, alone = world_in(Path(arguments[0])), Path(arguments[1]), Path(arguments[2])
    if arguments[3] == "sft":
        supervised(world, output)
    else:
        reinforced(world, output, alone, arguments[3])
    return 0


def reinforced(world: World, output: Path, alone: Path, kind: str) -> None:
    with noting_gathers(output / kind / "gathered.json"):
        reinforce(world, output / kind, kind)
    for name, whole in (("resumed", output), ("continued", alone)):
        begun = {"resume_from_checkpoint": str(whole / kind / "checkpoints" / "2")}
        reinforce(world, output / f"{kind}-{name}", kind, **begun)
    if STOPPED[output.name] == kind:
        reinforce_stopped(world, output / f"{kind}-stopped", kind)


@contextmanager
def noting_gathers(file: Path) -> Iterator[None]:
    """Write whether a weight is trained, for each that DeepSpeed gathers for a rollout phase."""
    from deepspeed.runtime import zero

    gather, gathered = zero.GatheredParameters, []

    def noting(parameters: list[Any]) -> Any:
        gathered.extend(p.requires_grad for p in parameters)
        return gather(parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zero, "GatheredParameters", noting)
        yield
    if os.environ["RANK"] == "0":
        file.write_text(json.dumps(gathered))


def supervised(world: World, output: Path) -> None:
    with pytest.raises(ConfigError, match="no block .*multi_gpu.yaml"):
        reconstruct(world, output / "reconstruction")
    supervise(world, output / "sft")
    begun = {"resume_from_checkpoint": str(output / "sft" / "checkpoints" / "2")}
    supervise(world, output / "sft-resumed", **begun)
