"""What a supervised run would do, without loading its weights: `dry_run=true`."""

from typing import Any

from mmrl.models.network.token_network import TokenNetwork
from mmrl.objectives import find_objective
from mmrl.objectives.options import MaskedConfig, StartConfig
from mmrl.objectives.policy_start import choose_trained
from mmrl.planning.network_memory import Needs, Pass, count_network, estimate_network
from mmrl.planning.plan_page import ELSEWHERE, Plan, add_memory, add_run, add_trained
from mmrl.planning.planned_launch import for_launch, plan_placement
from mmrl.planning.reward_probe import offline
from mmrl.pretrained.known import (
    BYTES,
    PUBLIC_PATCH,
    count_columns,
    find_here,
    find_sizes,
    outline_policy,
)
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.launch import count_processes
from mmrl.runtime.launch_checks import check_launch
from mmrl.runtime.placement import ALONE, Placement
from mmrl.sft_config import SFTConfig
from mmrl.training.optimizers import build_optimizers


@for_launch
def describe(config: SFTConfig, world_size: int | None = None) -> Plan:
    """What a run of `world_size` processes, or of those that were launched, would do; data are
    read, and nothing is downloaded but files that say what a checkpoint is. Raises ConfigError:
    settings that cannot run. Raises FileNotFoundError, ValueError: a checkpoint or tokenizer that
    cannot be loaded."""
    check_launch(config.optimizer, config.torch_compile)
    world_size, plan = world_size or count_processes(), Plan(config)
    entry, options = find_objective(config.objective)
    checkpoint = RunDirectory(config.output_dir).starting_point(config)
    for key in ("model", "vq"):
        if path := getattr(options, key, None):
            find_here(f"objective.{key}", path)
    with offline():
        network, data = entry.load().outline(options)
    plan.add("objective", f"{config.objective['name']}: {data}")
    if network is None and isinstance(options, StartConfig):
        name, raw = find_sizes(options.model)
        network = outline_policy(raw)
        network.public_config = dict(raw)
        choose_trained(network, options)
        plan.add("network", f"{options.model}{ELSEWHERE}; sizes are those of {name}")
    elif network is not None:
        count = sum(p.numel() for p in network.parameters())
        model = f"{getattr(options, 'model', '')}, ".removeprefix(", ")
        plan.add("network", f"{model}{count:,} parameters")
    if network is not None:
        build_optimizers(network, config)
    if isinstance(network, TokenNetwork):
        add_trained(plan, network)
    epochs, size = config.num_train_epochs, config.per_device_train_batch_size
    length = f"{config.max_steps} steps" if epochs is None else f"{epochs:g} epochs"
    add_run(plan, checkpoint, None if epochs else config.max_steps, length, world_size)
    micro, placement = config.gradient_accumulation_steps, plan_placement(config, world_size)
    examples = size * micro * world_size
    plan.add("step", f"{examples} examples: {micro} micro-batches of {size} per process")
    kernel = getattr(options, "attn_implementation", None)
    plan.add("computed", *choose_planned(config.bf16, placement, kernel).reasons)
    if isinstance(options, StartConfig) and isinstance(network, TokenNetwork):
        add_memory(plan, estimate_memory(config, options, network, placement), placement)
    return plan


def estimate_memory(
    config: SFTConfig, options: StartConfig, network: TokenNetwork, placement: Placement = ALONE
) -> Needs:
    """Bytes of a process by what holds them, at the longest rows that the settings allow, of a
    network without weights whose trained parts are chosen."""
    found, recompute = choose_planned(config.bf16, placement), options.gradient_checkpointing
    frozen = BYTES[options.dtype] if found.bf16 else 4
    sizes = count_network(network, config.optimizer, frozen, 4, bits=None, lora=0)
    sizes.weights += sum(network.count_parts().values()) * frozen
    rows, shape = config.per_device_train_batch_size, _row_shape(options, network)
    micro = Pass(network, placement.device, 2 if found.bf16 else 4, rows, *shape)
    update = micro.train(recompute)
    return estimate_network(sizes, placement, config, found, update, recompute)


def _row_shape(options: Any, network: TokenNetwork) -> tuple[int, int, int]:
    """Tokens of the longest row, how many of them are scored, and columns of their softmax."""
    if not isinstance(options, MaskedConfig):
        whole = options.completion_length if options.fill == "completion" else options.max_length
        return options.max_length, whole, network.vocab_size
    images = (options.image_size // PUBLIC_PATCH) ** 2
    edits, own = options.shares.get("image_edit", 0), options.shares.get("text_to_image", 0)
    tokens = options.max_prompt_length + images * (2 if edits else 1) + 3
    if own + edits == 1:
        return tokens, images, count_columns("text_to_image", network, network.public_config)
    return tokens, tokens, network.vocab_size
