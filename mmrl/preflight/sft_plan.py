"""What a supervised run would do, without loading its weights: `dry_run=true`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmrl.config import to_yaml
from mmrl.models.network.network import Network
from mmrl.objectives import find_objective
from mmrl.objectives.start_config import StartConfig
from mmrl.preflight.reward_probe import offline
from mmrl.preflight.sft_memory import describe_needs
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.computation import choose
from mmrl.runtime.launch import check_launch, count_processes
from mmrl.runtime.placement import read_placement
from mmrl.runtime.sharding.shardable import check_shardable, check_unpacked
from mmrl.training.optimizers import build_optimizers
from mmrl.training.trainable import trained_counts

if TYPE_CHECKING:
    from mmrl.sft_config import SFTConfig


def describe(config: SFTConfig, world_size: int | None = None) -> str:
    """Settings and plan of a run; data are read, nothing is downloaded or written.

    Args:
        config: of the run.
        world_size: number of processes; None for those that were launched.

    Raises:
        ConfigError: settings that cannot run.
        FileNotFoundError, ValueError: a checkpoint or tokenizer that cannot be loaded.
    """
    check_launch(config.optimizer, config.torch_compile)
    world_size = world_size or count_processes()
    entry, options = find_objective(config.objective)
    check_unpacked(getattr(options, "quantization_config", None), "objective.quantization_config")
    checkpoint = RunDirectory(config.output_dir).starting_point(config)
    with offline():
        network, data = entry.load().outline(options)
    size = "not on this machine: loaded from the hub"
    if network is not None:
        check_shardable(network, "objective.name", config.objective["name"])
        build_optimizers(network, config)
        size = f"{sum(p.numel() for p in network.parameters()):,} parameters"
    trained = trained_counts(network) if isinstance(network, Network) else ()
    kernel = getattr(options, "attn_implementation", None)
    computed = choose(config, attn_implementation=kernel).lines
    start = "the first step" if checkpoint is None else str(checkpoint)
    lines = [
        to_yaml(config),
        "plan",
        f"  run         {config.output_dir}, {_length(config)} from {start},"
        f" seed {config.seed}, {world_size} process{'' if world_size == 1 else 'es'}",
        f"  objective   {config.objective['name']}: {data}",
        f"  network     {size}",
        *(f"  {'' if n else 'trained':<12}{line}" for n, line in enumerate(trained)),
        *(f"  {'' if n else 'computed':<12}{line}" for n, line in enumerate(computed)),
        *(f"  {line}" for line in _training(config, world_size)),
    ]
    if isinstance(options, StartConfig):
        found = network if isinstance(network, Network) else None
        lines += describe_needs(config, options, found, read_placement(world_size=world_size))
    return "\n".join(lines) + "\n"


def _length(config: SFTConfig) -> str:
    epochs = config.num_train_epochs
    return f"{config.max_steps} steps" if epochs is None else f"{epochs:g} epochs"


def _training(config: SFTConfig, world_size: int) -> Iterator[str]:
    size, micro = config.per_device_train_batch_size, config.gradient_accumulation_steps
    yield (
        f"step        {size * micro * world_size} examples: {micro} micro-batches of {size}"
        f" per process"
    )
    yield (
        f"optimiser   {config.optimizer}, learning rate {config.learning_rate:g},"
        f" {config.lr_scheduler_type} after {config.warmup_steps} steps of warm-up"
    )
    due = [("evaluation", config.eval_steps), ("checkpoint", config.save_steps)]
    yield ", ".join(f"{name} every {n} steps" if n else f"no {name}" for name, n in due)
