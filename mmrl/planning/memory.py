"""Device memory of a run of reinforcement learning, estimated from sizes alone."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mmrl.algorithms.forwards import passes_per_rollout
from mmrl.models.network.network import Network
from mmrl.models.network.pipeline_parts import AUTOENCODER, ENCODERS
from mmrl.models.task_names import EDITS, writes_images
from mmrl.planning.network_memory import (
    BUCKET,
    ENCODING,
    ROLLOUT,
    Needs,
    NetworkBytes,
    Pass,
    count_moments,
    count_network,
    estimate_network,
)
from mmrl.pretrained.known import BYTES, Known, count_columns, outline_policy
from mmrl.rl_config import RLConfig
from mmrl.rollouts.pairing import count_candidates
from mmrl.rollouts.tasks import Task, completion_length
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.placement import ALONE, Placement
from mmrl.runtime.sharding.sampling import gathers_once
from mmrl.training.trainable import trained_in_full


def estimate(
    config: RLConfig, raw: Mapping[str, Any], tasks: Sequence[Task], placement: Placement = ALONE
) -> Needs:
    """Bytes of a process of a run, by what holds them, for `config.json` of its policy: what
    `estimate_network` names, `reference`, and `value`, a value model with its gradients and
    moments. A sharded one shares nothing with the policy, as `reference` does not."""
    network, size = outline_policy(raw), BYTES[config.model.dtype]
    network.part_options["left_out"] = config.model.without_parts
    network.part_options["tiled"] = config.model.vae_tiling
    sizes, recompute = count_policy(config, network), config.model.gradient_checkpointing
    found = choose_planned(config.bf16, placement, dtype=config.model.dtype)
    sharded = placement.way in ("fsdp2", "zero3")
    known, update, sampling = Known(config.model, raw), 0.0, 0.0
    computed = 2 if found.bf16 else size
    for task in tasks:
        micro, step = _find_passes(config, network, known, task, placement, computed)
        draws, followed = writes_images(task.config.task), 0.0
        if task.algorithm.follows_rewards:
            followed = network.count_decoding(step.scored, known.frames, gradient=True)
        steps = count_candidates(task.algorithm, task.config.sampler, micro.scored)
        passes = passes_per_rollout(task.algorithm, steps, micro.scored, network.block_size)
        graphs = 1 if task.algorithm.pass_by_pass else passes  # that are held together
        update = max(update, micro.train(recompute, graphs) + followed)
        decoding = network.count_decoding(step.scored, known.frames) if draws else 0.0
        sampling = max(sampling, step.sample(task.config.sampler), decoding)
    weights, memory = sizes.weights + sizes.adapter, placement.memory or 0.0
    whole = gathers_once(config.rollout_weights, weights, memory) and sharded
    needs = estimate_network(sizes, placement, config, found, update, recompute, sampling, whole)
    _add_frozen(needs, config, network, known, placement)
    parts, away = placement.shards if sharded else 1, placement.weights_apart
    if config.needs_reference:
        # a sharded copy shares nothing with the policy
        copied = sizes.weights if sharded and not sizes.adapter else sizes.trained - sizes.adapter
        needs.add("reference", (copied + sizes.adapter * config.sync_ref_model) / parts, away)
    needs.add("old policy", sizes.average * (config.old_policy is not None) / parts, away)
    if config.value is not None:
        _add_value(needs, config, count_value(config, network, sizes), placement)
    return needs


def _add_frozen(
    needs: Needs, config: RLConfig, network: Network, known: Known, placement: Placement
) -> None:
    """Add the parts of a pipeline, in the phases that have them; see `Network.move_parts`."""
    latents = any(hasattr(each, "unloads") for each in known.families[0].LAYOUTS.values())
    for name, number in network.count_parts().items():
        phase = offloaded_phase(config, placement) if latents else None
        if latents and name == ENCODERS and config.model.unload_text_encoders:
            phase = ENCODING
        size = 4 if name == AUTOENCODER else BYTES[config.model.dtype]
        needs.add_for(phase, name, number * size)


def offloaded_phase(config: RLConfig, placement: Placement) -> str | None:
    """The phase in which what may be offloaded is on the device; None for all."""
    return ROLLOUT if config.offload and placement.device != "cpu" else None


def count_value(config: RLConfig, network: Network, sizes: NetworkBytes) -> tuple[float, ...]:
    """Bytes that a value model trains, those with their moments, and what it does not train."""
    size = BYTES[config.model.dtype]
    own = float(network.width * (4 if sizes.adapter else size)) + sizes.adapter
    rest = [p for n, p in network.named_parameters() if not n.startswith(("head.", "vision."))]
    own += size * sum(p.numel() for p in rest if p.requires_grad)
    frozen = size * sum(p.numel() for p in rest if not p.requires_grad)
    return own, own + count_moments(config.optimizer, own / size, size), float(frozen)


def _add_value(
    needs: Needs, config: RLConfig, counted: tuple[float, ...], placement: Placement
) -> None:
    """Add the bytes of a value model, counted as `estimate_network` counts a network."""
    (own, state, frozen), way = counted, placement.way
    if config.save_steps and config.async_save:
        needs.add("snapshot", state, placement.device != "cpu")
    state += own * (way in ("zero2", "zero3"))
    held = (own + frozen) / placement.shards if way in ("fsdp2", "zero3") else own
    needs.add("value", held + own * placement.buckets, placement.weights_apart)
    divided = 1 if way == "whole" else placement.shards
    needs.add("value", state / divided, placement.state_apart)
    if way == "zero3":
        needs.add("buckets", min(BUCKET, own))


def count_policy(config: RLConfig, network: Network) -> NetworkBytes:
    """Sizes of a run's policy, given without an adapter; marks its parameters as trained or not."""
    model, size, adapter = config.model, BYTES[config.model.dtype], 0
    own = {id(p) for p in trained_in_full(network, model).values() if not config.frozen}
    for parameter in network.parameters():
        parameter.requires_grad_(id(parameter) in own)
    if model.lora is not None and not config.frozen:
        names = network.list_layers(model.lora.target_modules)
        layers: list[Any] = [network.get_submodule(name) for name in names]
        adapter = model.lora.r * sum(each.in_features + each.out_features for each in layers)
    bits = None if model.quantization_config is None else model.quantization_config.bits
    return count_network(network, config.optimizer, size, size, bits, adapter)


def _find_passes(
    config: RLConfig, network: Network, known: Known, task: Task, placement: Placement, size: int
) -> tuple[Pass, Pass]:
    """The forward passes of a micro-batch, and of a batch of rollouts that is sampled."""
    settings, world_size = task.config, placement.world_size
    response, shown, length, trained = count_row(config, network, known, task)
    columns = count_columns(settings.task, network, known.config or {})
    build = partial(Pass, network, placement.device, size, scored=response, columns=columns)
    micro, branches = config.micro_batch_size(world_size), task.algorithm.guidance.branches
    update = build(micro, trained, branches=branches, shown=shown)
    rows = min(settings.rollouts_at_once, task.rollouts_per_step // world_size)
    own = -(-shown // settings.num_generations)  # a group's images are encoded once
    branches = settings.sampler.guidance.branches
    return update, build(rows, length, branches=branches, shown=own)


def count_row(config: RLConfig, network: Network, known: Known, task: Task) -> tuple[int, ...]:
    """Positions of a rollout: its response, images in its prompt, all where it is sampled, and all
    where it is scored, by a network of blocks with a copy of the response that has open tokens."""
    response, shown = completion_length(task.config, known), _count_shown(known, task, network)
    length = config.model.max_prompt_length + shown + response + 3
    return response, shown, length, length + response * (network.block_size is not None)


def _count_shown(known: Known, task: Task, network: Network) -> int:
    """Positions of images in the prompt that has the most; where the prompts are not here, of one
    image of the size that takes the most."""
    name = task.config.task
    layout = known.families[0].LAYOUTS.get(name)
    if layout is not None and name in EDITS:
        return known.count_image_tokens()
    if layout is None or writes_images(name):
        return 0
    if layout.needs_vq:
        return known.count_image_tokens(written=False)
    if not layout.needs_tower:
        return 0
    tiling = known.tiling(network)
    if not task.prompts:
        return tiling.most_rows
    sizes = (prompt.image_sizes for prompt in task.prompts)
    return max(sum(tiling.rows(*size) for size in each) for each in sizes)
