"""What a run would do, without loading its weights: `dry_run=true`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mmrl.adapter import ROLES
from mmrl.config import to_yaml
from mmrl.rl_config import RLConfig
from mmrl.tasks import Task
from models.checkpoint import FAMILIES
from models.core import CoreConfig, MaskedTokenModel

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def describe(config: RLConfig, world_size: int = 1) -> str:
    """Settings, plan and memory estimate of a run; nothing is loaded but prompts.

    Raises:
        ConfigError: settings that cannot run.
    """
    config.check_geometry(world_size)
    tasks = [Task(name, options) for name, options in config.tasks.items()]
    lines = [to_yaml(config), "plan", f"  policy      {config.model.path}"]
    lines += [f"  run         {config.output_dir}, {config.max_steps} steps, seed {config.seed}"]
    for task in tasks:
        lines += [f"  {line}" for line in _task(config, task)]
    lines += ["memory", *(f"  {line}" for line in _memory(config, tasks))]
    return "\n".join(lines) + "\n"


def _task(config: RLConfig, task: Task) -> Iterator[str]:
    settings, algorithm, sampler = task.config, task.algorithm, task.config.sampler
    per_step = settings.num_prompts * settings.num_generations
    branches = 2 if sampler.cfg_scale else 1
    micro = per_step // config.per_device_train_batch_size
    scored = 1 + (algorithm.num_iterations > 1) + (algorithm.beta > 0)
    rewards = ", ".join(f"{r.get('weight', 1)} x {r['name']}" for r in settings.rewards)
    yield f"task        {task.name} ({settings.task})"
    yield f"prompts     {len(task.prompts)} to train on, {len(task.eval_prompts)} held out"
    yield f"rollouts    {settings.num_prompts} prompts x {settings.num_generations} a step"
    yield (
        f"sampler     {sampler.name}, {sampler.steps} steps of {branches * per_step} rows"
        f" (guidance {sampler.cfg_scale:g})"
    )
    yield f"rewards     {rewards}"
    yield (
        f"algorithm   {algorithm.name}: masks {algorithm.mask}, {algorithm.num_draws} draws,"
        f" {algorithm.num_iterations} inner iterations, beta {algorithm.beta:g}"
    )
    yield (
        f"update      {micro * algorithm.num_iterations * algorithm.num_draws} micro-batches of"
        f" {config.per_device_train_batch_size}, {scored} forwards each, 1 backward"
    )


def _memory(config: RLConfig, tasks: list[Task]) -> Iterator[str]:
    raw = local_config(config.model.path)
    if raw is None:
        yield (
            f"{config.model.path} is not on this machine; sizes below are those of LLaDA-8B"
            " with MMaDA's vocabulary"
        )
        raw = MMADA_8B
    core = FAMILIES[raw["model_type"]].core_config(raw)
    for name, size in estimate(config, core, tasks).items():
        yield f"{name:<12}{size / 2**30:8.2f} GiB"


def estimate(config: RLConfig, core: CoreConfig, tasks: list[Task]) -> dict[str, float]:
    """Bytes per device of weights, gradients with optimiser, reference and activations.

    Activations are those one micro-batch keeps for the backward pass: about 18 vectors of the
    hidden and 4 of the MLP width per token and block, or one per block with checkpointing, and the
    logits of the response positions over the response vocabulary.
    """
    with torch.device("meta"):
        network = MaskedTokenModel(core)
    weights = sum(p.numel() for p in network.parameters())
    size, lora = BYTES[config.model.dtype], config.model.lora
    trained = weights if lora is None else adapter_size(network, lora.r, lora.target_modules)
    rows = config.per_device_train_batch_size
    branches = max(2 if task.algorithm.cfg_scale else 1 for task in tasks)
    length = config.model.max_prompt_length + 1024
    vectors = 18 * core.hidden_size + 4 * core.mlp_size
    if config.model.gradient_checkpointing:
        vectors = core.hidden_size + vectors // core.num_layers
    activations = (
        rows * branches * length * core.num_layers * vectors * (2 if config.bf16 else size)
    )
    frozen = weights * size if config.needs_reference and lora is None else 0
    return {
        "weights": weights * size,
        "optimiser": trained * (size + 8),
        "reference": frozen,
        "activations": activations,
    }


def adapter_size(network: MaskedTokenModel, rank: int, roles: list[str]) -> int:
    """Parameters of a LoRA adapter of a rank on the layers of some roles."""
    ends = tuple(ROLES[role] for role in roles)
    layers = [module for name, module in network.named_modules() if name.endswith(ends)]
    return sum(rank * (m.in_features + m.out_features) for m in layers)  # type: ignore[operator]


def local_config(path: str) -> dict[str, Any] | None:
    """`config.json` of a checkpoint on this machine, None when it is not here."""
    file = Path(path) / "config.json"
    return json.loads(file.read_text()) if file.is_file() else None


MMADA_8B = {
    "model_type": "mmada",
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "mlp_hidden_size": 12288,
    "rope_theta": 500000.0,
    "embedding_size": 134656,
}
"""Sizes of Gen-Verse/MMaDA-8B, for estimates without the checkpoint."""
