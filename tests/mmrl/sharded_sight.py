"""Tiny runs of a model that sees, for one process and for several that accelerate launches.

`main` is what `tests.mmrl.pair` calls.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from mmrl import rl, sft
from mmrl.data.prompts import DataConfig
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import TaskConfig
from mmrl.samplers import SamplerConfig
from mmrl.types import Sample
from tests.models.causal import write_qwen_vl
from tests.models.networks import write_small_llada_v

SETTINGS: dict[str, dict[str, Any]] = {
    "tower": {"path": "policy", "train_vision_tower": True},
    "causal": {"path": "causal", "train_vision_tower": True},
    "projector": {
        "path": "policy",
        "modules_to_train": ["vision.projector"],
        "lora": LoraConfig(r=4, lora_alpha=8),
    },
}
"""Everything is trained, beside a frozen reference that sees with its own weights; and a projector
beside an adapter."""
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "policy": ({"name": "static", "steps": 4, "eos": "leave"}, "mask_grpo"),
    "causal": ({"name": "autoregressive"}, "grpo"),
}
"""The sampler and the algorithm of a policy."""
STEPS: dict[str, Any] = {"learning_rate": 1e-2, "adam_epsilon": 1e-3, "eval_steps": 2}
STEPS |= {"save_steps": 0, "bf16": False}


def write(folder: Path) -> None:
    """A policy that sees, questions about pictures of two sizes, and words."""
    write_small_llada_v(folder / "policy")
    write_qwen_vl(folder / "causal", "qwen3_vl")
    rows = []
    for n, size in enumerate([(8, 8), (20, 9), (9, 20), (8, 12)]):
        Image.new("RGB", size, (60 * n, 255 - 60 * n, 99)).save(folder / f"{n}.png")
        rows.append({"prompt": "which", "image": f"{n}.png", "completion": "red"[: n % 3 + 1]})
    words = [{"prompt": text, "completion": "blue"} for text in ("a", "b c", "d", "e")]
    for name, some in {
        "sight": rows,
        "words": words,
        "mixed": [row for pair in zip(rows, words, strict=True) for row in pair],
    }.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))


def lengths(samples: list[Sample]) -> list[float]:
    return [float(len(str(sample.completion))) for sample in samples]


def reinforce(world: Path, output: Path, kind: str) -> None:
    """Two steps on questions and on words, evaluated on three questions one by one."""
    model = {"vq": None, "max_prompt_length": 400, **SETTINGS[kind]}
    sampler, algorithm = WAYS[model["path"]]
    options: dict[str, Any] = {"num_prompts": 2, "num_generations": 2, "rollout_batch_size": 1}
    options |= {"eval_limit": 3, "max_completion_length": 8}
    options |= {"rewards": [{"name": "length", "reward": lengths}]}
    options |= {"sampler": SamplerConfig(**sampler)}
    options |= {"algorithm": {"name": algorithm, "num_iterations": 2, "beta": 0.1}}
    prompts = str(world / "sight.jsonl")
    seen = {"prompts": prompts, "eval_prompts": prompts, "data": DataConfig()}
    tasks = {
        "sight": TaskConfig(task="image_to_text", **seen, **options),
        "words": TaskConfig(task="text", prompts=str(world / "words.jsonl"), **options),
    }
    values = {"output_dir": str(output), "tasks": tasks, "per_device_train_batch_size": 1}
    values |= {"model": ModelConfig(**{**model, "path": str(world / model["path"])})}
    rl.train(RLConfig(**values, **STEPS, max_steps=2))


def supervise(world: Path, output: Path, batch_size: int, rows: str) -> None:
    """Four steps on two rows each; of `mixed` rows one process may see and the other read words
    alone."""
    data = str(world / f"{rows}.jsonl")
    objective = {"name": "text", "data": data, "eval_data": data, "model": str(world / "policy")}
    objective |= {"train_vision_tower": True, "max_length": 500, "save_dtype": "float32"}
    values = {"output_dir": str(output), "objective": objective, "max_steps": 4, "logging_steps": 1}
    sft.train(sft.SFTConfig(**values, **STEPS, per_device_train_batch_size=batch_size))


def main(arguments: list[str]) -> int:
    """The runs of every process of a pair; arguments: folder of the world, folder for the runs, and
    the rows of supervised runs."""
    run_all(Path(arguments[0]), Path(arguments[1]), arguments[2:])
    return 0


def run_all(world: Path, output: Path, rows: Sequence[str], batch_size: int = 1) -> None:
    for kind in SETTINGS:
        reinforce(world, output / kind, kind)
    for name in rows:
        supervise(world, output / name, batch_size, name)
