"""Device memory of a run, estimated from sizes alone.

The estimate counts the tensors that grow with the model or the batch. The image tokenizer, rewards
on the same device and the reserve of the allocator come on top.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mmrl.algorithms.forwards import passes_per_rollout
from mmrl.models.families import get_family
from mmrl.models.network.core import MaskedTokenModel
from mmrl.models.network.network import Network
from mmrl.models.task_names import EDITS, writes_images
from mmrl.preflight.logits_memory import count_logits, hold_logits
from mmrl.preflight.policy_sizes import (
    count_policy,
    count_trained,
    list_tensors,
    outline_policy,
    plan_rollout_weights,
)
from mmrl.preflight.public_sizes import BYTES, MMADA_8B
from mmrl.preflight.state_memory import (
    CastBytes,
    Needs,
    add_checkpoints,
    count_casts,
    count_moments,
    gather_units,
    hold_state,
    peak_of_loading,
    peak_of_step,
    peak_of_update,
)
from mmrl.pretrained.known import image_tokens
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task, completion_length
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.placement import ALONE, Placement
from mmrl.training.trainable import trained_in_full


def estimate(
    config: RLConfig, raw: Mapping[str, Any], tasks: Sequence[Task], placement: Placement = ALONE
) -> Needs:
    """Bytes of a process, by what holds them.

    Args:
        config: of the run.
        raw: `config.json` of the policy.
        tasks: of the run.
        placement: how processes share the model.

    Returns:
        `weights`, `adapter`, `gradients`, `optimiser`, `buckets` of gradients that are reduced,
        `reference`, `average` where there is one, `value` (a value model with its gradients and
        moments); and what single phases hold beside them: `loading`, `sampling` (of a batch of
        rollouts), `update` (of a micro-batch), `step` of the optimiser and `saving`.
    """
    network = outline_policy(raw)
    size, lora = BYTES[config.model.dtype], config.model.lora
    full, adapter = count_trained(config, network)
    tensors = list_tensors(config, network)
    bf16 = choose_planned(config, placement, dtype=config.model.dtype).bf16
    model = count_policy(config, network, placement)
    needs = hold_state(model, placement)
    sharded = placement.way in ("fsdp2", "zero3")
    parts, away = placement.shards if sharded else 1, placement.weights_apart
    needs.add("adapter", adapter * 4 / parts, away)
    if config.needs_reference:
        # a sharded copy shares nothing with the policy
        copied = model.weights if sharded and lora is None else full
        needs.add("reference", (copied + adapter * 4 * config.sync_ref_model) / parts, away)
    if config.ema_decay is not None:
        needs.add("average", (full / size + adapter) * 4 / parts, away)
    own = _value(config, network, adapter)
    moments = count_moments(config.optimizer, own / size, size)
    needs.add("value", (own * (3 if placement.buckets else 2) + moments) / parts, away)
    rows = config.micro_batch_size(placement.world_size)
    micro = [_update(config, network, raw, task, rows, bf16) for task in tasks]
    kept, working = (max(each) for each in zip(*micro, strict=True))
    copies = CastBytes(0.0, 0.0, 0.0)
    narrow = placement.way == "fsdp2" and model.gathered < 1  # gathered in bfloat16
    if bf16 and size == 4 and not narrow:
        copies = count_casts(tensors, model, config.model.gradient_checkpointing)
    kept, working = kept + copies.kept, working + copies.working
    world = placement.world_size
    sampling = max(_sampling(config, network, raw, task, world, bf16) for task in tasks)
    needs.add("loading", peak_of_loading(model, placement))
    whole = plan_rollout_weights(config, model, placement) == "whole"
    if whole and placement.way == "fsdp2":  # what is not trained is never sharded, nor gathered
        needs.add("weights", (model.weights - full) * (1 - 1 / placement.shards), away)
        model = replace(model, outer=model.trained_outer, block=model.trained_block)
    saved = adapter * 4 + full if lora is not None else model.weights
    if placement.way == "zero3":
        held = _keep_whole(tensors, whole and not placement.offload_weights)
        needs.add("kept weights", held)
        model = replace(model, weights=model.weights - held)
    needs.add("sampling", sampling + copies.sampling + gather_units(model, placement, whole))
    needs.add("update", peak_of_update(model, placement, kept, working))
    needs.add("step", peak_of_step(model, placement))
    add_checkpoints(needs, model, placement, saved, config.async_save and config.save_steps > 0)
    return needs


def _keep_whole(tensors: Sequence[tuple[str, float, float]], frozen: bool) -> float:
    """Bytes of the weights that ZeRO-3 keeps whole beside their parts: a vision tower of which
    something is trained, and those that are not trained where rollouts have whole weights."""
    sees = any(gradient for name, _, gradient in tensors if name.startswith("vision."))
    return sum(
        size
        for name, size, gradient in tensors
        if (sees and name.startswith("vision.")) or (frozen and not gradient)
    )


def _value(config: RLConfig, network: Network, adapter: int) -> float:
    """Bytes of the trained part of a value model: its head, and its copy of the policy, which
    shares with the policy what is not trained."""
    if config.value is None:
        return 0
    size = BYTES[config.model.dtype]
    head = network.width * (size if config.model.lora is None else 4)
    if config.value.backbone != "copy":
        return head
    full = trained_in_full(network, config.model).items()
    return (
        head
        + sum(p.numel() for n, p in full if not n.startswith(("head.", "vision."))) * size
        + adapter * 4
    )


def _update(
    config: RLConfig, network: Network, raw: Mapping[str, Any], task: Task, rows: int, bf16: bool
) -> tuple[float, float]:
    """Bytes of activations of a micro-batch: those kept for the backward pass, and those beside
    them at the end of the forward pass."""
    model, algorithm = config.model, task.algorithm
    response, columns = _response_shape(config, network, raw, task)
    size = 2 if bf16 else BYTES[model.dtype]
    images = _image_positions(config, raw, task, network.vision)
    block_size = find_block_size(network)
    length = model.max_prompt_length + images + response + 3
    length += 0 if block_size is None else response  # the copy with hidden tokens
    kept, working = network.count_activations(length, model.gradient_checkpointing, size)
    passes = passes_per_rollout(algorithm, task.config.sampler.steps, response, block_size)
    held = 1 if algorithm.pass_by_pass else min(config.passes_at_once, passes)
    sides = algorithm.guidance.sides
    logits, beside = hold_logits(network, rows * response, columns, held, sides)
    return sides * held * rows * kept + logits, max(sides * rows * working, beside)


def find_block_size(network: Network) -> int | None:
    """Positions of a block where attention is causal between blocks; None where it is not."""
    return network.core.block_size if isinstance(network, MaskedTokenModel) else None


def _image_positions(config: RLConfig, raw: Mapping[str, Any], task: Task, vision: Any) -> int:
    """Positions of images in the prompt that has the most."""
    layout = get_family(raw).LAYOUTS.get(task.config.task)
    name = task.config.task
    if layout is None or (writes_images(name) and name not in EDITS):
        return 0
    if layout.needs_vq:
        return image_tokens(config.model, raw, written=name in EDITS)
    sizes = (prompt.image_sizes for prompt in task.prompts)
    return max((sum(vision.tiling.rows(*size) for size in each) for each in sizes), default=0)


def _sampling(
    config: RLConfig,
    network: Network,
    raw: Mapping[str, Any],
    task: Task,
    world_size: int,
    bf16: bool,
) -> float:
    """Bytes of a step of the sampler: its cache, and a block of the network at work, or logits and
    what is computed from them."""
    sampler, model = task.config.sampler, config.model
    response, columns = _response_shape(config, network, raw, task)
    rows = min(task.config.rollouts_at_once, task.rollouts_per_step // world_size)
    size = 2 if bf16 else BYTES[model.dtype]
    length = (
        model.max_prompt_length + _image_positions(config, raw, task, network.vision) + response
    )
    _, working = network.count_activations(length + 3, False, size)
    sides = rows * sampler.guidance.sides
    cached = 0 if sampler.cache == "none" else network.count_cached(length) * size
    logits = count_logits(network, sampler, rows, response, columns)
    return max(sides * working, logits) + sides * cached


def _response_shape(
    config: RLConfig, network: Network, raw: Mapping[str, Any], task: Task
) -> tuple[int, int]:
    """Response positions of a task and columns of their vocabulary, all of it for a text."""
    images = writes_images(task.config.task)
    columns = raw.get("codebook_size", MMADA_8B["codebook_size"]) if images else network.vocab_size
    return completion_length(task.config, config.model, raw), columns
