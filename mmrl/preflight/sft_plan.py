"""What a supervised run would do, without loading its weights: `dry_run=true`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.models.network.network import Network
from mmrl.objectives import find_objective
from mmrl.objectives.start_config import StartConfig
from mmrl.preflight.memory_plan import describe_memory
from mmrl.preflight.plan_page import ELSEWHERE, Plan
from mmrl.preflight.planned_launch import plan_placement
from mmrl.preflight.reward_probe import offline
from mmrl.preflight.sft_memory import estimate_memory, outline_public, plan_disk
from mmrl.preflight.training_rows import add_trained, describe_run
from mmrl.pretrained.known import find_here
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.launch import check_launch, count_processes
from mmrl.runtime.sharding.shardable import check_shardable, check_unpacked
from mmrl.training.optimizers import build_optimizers

if TYPE_CHECKING:
    from mmrl.sft_config import SFTConfig


def describe(config: SFTConfig, world_size: int | None = None) -> Plan:
    """What a run would do; data are read, and nothing is downloaded but files that say what a
    checkpoint is.

    Args:
        config: of the run.
        world_size: number of processes; None for those that were launched.

    Raises:
        ConfigError: settings that cannot run.
        FileNotFoundError, ValueError: a checkpoint or tokenizer that cannot be loaded.
    """
    check_launch(config.optimizer, config.torch_compile)
    world_size, plan = world_size or count_processes(), Plan(config)
    entry, options = find_objective(config.objective)
    check_unpacked(getattr(options, "quantization_config", None), "objective.quantization_config")
    checkpoint = RunDirectory(config.output_dir).starting_point(config)
    for key in ("model", "vq"):
        if path := getattr(options, key, None):
            find_here(f"objective.{key}", path)
    with offline():
        network, data = entry.load().outline(options)
    plan.add("objective", f"{config.objective['name']}: {data}")
    name, absent = None, network is None
    if network is None and isinstance(options, StartConfig):
        name, network = outline_public(options)
        plan.add("network", f"{options.model}{ELSEWHERE}; sizes are those of {name}")
    if network is not None:
        check_shardable(network, "objective.name", config.objective["name"])
        build_optimizers(network, config)
        if not absent:
            count = sum(p.numel() for p in network.parameters())
            model = f"{getattr(options, 'model', '')}, ".removeprefix(", ")
            plan.add("network", f"{model}{count:,} parameters")
        if isinstance(network, Network):
            add_trained(plan, network)
    epochs, size = config.num_train_epochs, config.per_device_train_batch_size
    length = f"{config.max_steps} steps" if epochs is None else f"{epochs:g} epochs"
    describe_run(plan, checkpoint, None if epochs else config.max_steps, length, world_size)
    micro, placement = (
        config.gradient_accumulation_steps,
        plan_placement(config.devices, world_size),
    )
    examples = size * micro * world_size
    plan.add("step", f"{examples} examples: {micro} micro-batches of {size} per process")
    kernel = getattr(options, "attn_implementation", None)
    plan.add("computed", *choose_planned(config, placement, kernel).short)
    if isinstance(options, StartConfig) and isinstance(network, Network):
        describe_memory(plan, estimate_memory(config, options, network, placement), placement)
    if network is not None:
        plan_disk(config, options, network).describe(plan)
    return plan
