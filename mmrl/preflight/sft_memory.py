"""Device memory and disk of a supervised run of a policy, estimated from sizes alone."""

from dataclasses import replace
from typing import Any

from torch import nn

from mmrl.models.network.network import Network
from mmrl.models.network.vision import Vision
from mmrl.objectives.data_config import SourceConfig
from mmrl.objectives.masked_config import MaskedConfig
from mmrl.objectives.start_config import StartConfig
from mmrl.preflight.disk import VQ_BYTES, Disk, list_written
from mmrl.preflight.logits_memory import hold_logits
from mmrl.preflight.policy_sizes import outline_policy
from mmrl.preflight.public_sizes import BYTES, MMADA_8B, find_sizes
from mmrl.preflight.state_memory import (
    CastBytes,
    Needs,
    add_checkpoints,
    count_casts,
    count_model,
    count_moments,
    gather_share,
    hold_state,
    peak_of_loading,
    peak_of_step,
    peak_of_update,
)
from mmrl.pretrained.known import PUBLIC_PATCH
from mmrl.pretrained.model_config import ModelConfig
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.placement import ALONE, Placement
from mmrl.sft_config import SFTConfig
from mmrl.training.trainable import ADAPTER, train_parts


def outline_public(options: StartConfig) -> tuple[str | None, Network]:
    """Name and network of the published checkpoint that an objective starts from, on the meta
    device, its trained parts chosen."""
    name, raw = find_sizes(options.model)
    network = outline_policy(raw)
    network.public_config = dict(raw)
    network.requires_grad_(True)
    if isinstance(network.vision, Vision):
        network.vision.train_tower(False)
    names = ("lora", "train_vision_tower", "modules_to_train")
    wanted = {key: getattr(options, key) for key in names if hasattr(options, key)}
    train_parts(network, ModelConfig(path=options.model, **wanted), 0)
    return name, network


def estimate_memory(
    config: SFTConfig, options: StartConfig, network: Network, placement: Placement = ALONE
) -> Needs:
    """Bytes of a process by what holds them, at the longest rows that the settings allow.

    Args:
        config: of the run.
        options: of its objective.
        network: without weights, its trained parts chosen.
        placement: how processes share the model.
    """
    found = choose_planned(config, placement)
    bf16, lora = found.bf16, getattr(options, "lora", None) is not None
    narrow = BYTES[options.dtype] if bf16 else 4
    tensors = [
        (name, p.numel() * (4 if p.requires_grad else narrow), p.numel() * 4 * p.requires_grad)
        for name, p in network.named_parameters()
    ]
    share = gather_share(bf16, found.torch_compile, narrow if lora else 4)
    model = replace(count_model(tensors, config.optimizer, 4), gathered=share)
    needs = hold_state(model, placement)
    if config.ema_decay:
        parts = placement.shards if placement.way in ("fsdp2", "zero3") else 1
        needs.add("average", model.trained / parts, placement.weights_apart)
    kept, working = _activations(config, options, network, 2 if bf16 else 4)
    wide = [each for each in tensors if each[2] or narrow == 4]
    copies = CastBytes(0.0, 0.0, 0.0)
    if bf16 and not (placement.way == "fsdp2" and share < 1):  # else gathered in bfloat16
        copies = count_casts(wide, model, options.gradient_checkpointing)
    kept, working = kept + copies.kept, working + copies.working
    needs.add("loading", peak_of_loading(model, placement, not options.model))
    needs.add("update", peak_of_update(model, placement, kept, working))
    needs.add("step", peak_of_step(model, placement))
    copied = config.async_save and config.save_steps > 0
    add_checkpoints(needs, model, placement, model.trained if lora else model.weights, copied)
    return needs


def _activations(
    config: SFTConfig, options: StartConfig, network: Network, size: int
) -> tuple[float, float]:
    """Bytes that the backward pass of a micro-batch needs, all completions at their longest: those
    kept, and those beside them."""
    tokens, scored, columns = _row_shape(options, network)
    kept, working = network.count_activations(tokens, options.gradient_checkpointing, size)
    rows = config.per_device_train_batch_size
    logits = hold_logits(network, rows * scored, columns)
    return kept * rows, max(working * rows, sum(logits))


def _row_shape(options: StartConfig, network: Network) -> tuple[int, int, int]:
    """Tokens of the longest row, how many of them are scored, and columns of their softmax."""
    if isinstance(options, MaskedConfig):
        images, raw = (options.image_size // PUBLIC_PATCH) ** 2, network.public_config
        edits, own = options.shares.get("image_edit", 0), options.shares.get("text_to_image", 0)
        tokens = options.max_prompt_length + images * (2 if edits else 1) + 3
        if own + edits == 1:
            return tokens, images, raw.get("codebook_size", MMADA_8B["codebook_size"])
        return tokens, tokens, network.vocab_size
    assert isinstance(options, SourceConfig)
    whole = options.completion_length if options.fill == "completion" else options.max_length
    return options.max_length, whole, network.vocab_size


def plan_disk(config: SFTConfig, options: Any, network: nn.Module) -> Disk:
    """The disk of a run.

    Args:
        config: of the run.
        options: of its objective.
        network: its trained parts chosen.
    """
    named = list(network.named_parameters())
    own = [(name, p.numel()) for name, p in named if p.requires_grad]
    trained = sum(n for _, n in own)
    base = sum(p.numel() for name, p in named if ADAPTER not in name)
    whole = base * BYTES[getattr(options, "save_dtype", "float32")]
    model = whole if getattr(options, "lora", None) is None else trained * 4
    state = sum(count_moments(config.optimizer, n, 4, "embed" in name) for name, n in own)
    state += trained * 4 * (1 + bool(config.ema_decay))
    downloads = {getattr(options, "model", ""): base * 2.0, getattr(options, "vq", ""): VQ_BYTES}
    written = list_written(config, model, state, whole if config.merge_adapter else None)
    return Disk(config.output_dir, written, {key: n for key, n in downloads.items() if key})
