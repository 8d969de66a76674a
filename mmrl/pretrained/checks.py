"""Settings of the policy that its checkpoint cannot have, refused before it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mmrl.config import ConfigError, check
from mmrl.generation.kinds import SAMPLER_KINDS, SAMPLERS
from mmrl.models.adapter_weights import OPTIONS, list_layers, locate_adapter
from mmrl.models.families import FAMILIES, find_family, names_of
from mmrl.models.image_tokenizers import PUBLIC_VQ
from mmrl.models.image_tokenizers.image_tokenizer import build_vq, outline_vq
from mmrl.models.layouts.chat_templates import read_template
from mmrl.models.layouts.layout_config import MAX_COMPLETION_LENGTH, LayoutConfig
from mmrl.models.loading import outline
from mmrl.models.network.network import Network
from mmrl.models.policy import Policy, outline_policy
from mmrl.models.quantization import list_quantized
from mmrl.models.source import ADAPTER_CONFIG, read_adapter_config
from mmrl.models.task_names import writes_images
from mmrl.pretrained.known import Known, adapter_directory, find_here, find_published
from mmrl.pretrained.model_config import ModelConfig, layout_options, matches, part_of
from mmrl.samplers import SamplerConfig
from mmrl.types import Prompt


def check_checkpoints(known: Known) -> Policy | None:
    """Check where the checkpoints are and, where they are here, what the headers of their files
    say; return the policy without weights, None where it is not on this machine. Raises
    ConfigError: one that is neither a directory nor possibly on the hub. Raises FileNotFoundError,
    ValueError: one that `load_policy` would refuse, or that the hub does not return."""
    model, own = known.model, known.vq
    if isinstance(model.chat_template, str):
        try:
            read_template(model.chat_template)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigError(f"model.{error}") from error
    if model.train_vision_tower:
        layouts = [layout for family in known.families for layout in family.LAYOUTS.values()]
        sees = any(layout.needs_tower for layout in layouts)
        allowed = "a checkpoint with a vision tower to train its vision tower"
        check(sees, "model.path", model.path, allowed)
    options = LayoutConfig(**layout_options(model))
    check_continued(model)
    directory = find_here("model.path", model.path, model.without_parts)
    tokenizer = None if own is None else find_here("model.vq", own)
    vq = None if tokenizer is None else outline_vq(tokenizer)
    if vq is None and own == PUBLIC_VQ:
        with torch.device("meta"):
            vq = build_vq({})
    if directory is None:
        return None
    policy = outline_policy(directory, options, vq)
    check_patterns(policy.network, model)
    return policy


def check_continued(model: ModelConfig, where: str = "model") -> None:
    """Compare `lora` with the adapter that `path` is, if it is one on this machine. Raises
    ConfigError: it has another rank, scale or variant, or is of other layers."""
    directory = adapter_directory(model.path)
    if model.lora is None or directory is None:
        return
    stored, network = read_adapter_config(directory), outline(directory, model.without_parts)
    layers = list_layers(locate_adapter(directory, names_of(network)))
    found: dict[str, Any] = {key: stored.get(key) or False for key in OPTIONS}
    known = network.layer_roles.items()
    found["target_modules"] = [
        role for role, ends in known if any(layer.endswith(tuple(ends)) for layer in layers)
    ]
    advice = "Take that, or merge the adapter first: python scripts/merge_adapter.py."
    for key, value in found.items():
        given = getattr(model.lora, key)
        same = sorted(given) == sorted(value) if key == "target_modules" else given == value
        allowed = f"{value!r}, which {directory / ADAPTER_CONFIG} has"
        check(same, f"{where}.lora.{key}", given, allowed, advice)


def check_patterns(network: Network, model: ModelConfig, where: str = "model") -> None:
    """Refuse patterns that name nothing of the network, or nothing that can be trained. Raises
    ConfigError: a pattern fits no parameter; `where` is the dotted key of the settings."""
    names = {n for n, _ in network.named_parameters()} - network.unread
    packed = list_quantized(network) if model.quantization_config is not None else []
    known = ", ".join(dict.fromkeys(part_of(name) for name, _ in network.named_parameters()))
    for pattern in model.modules_to_train or ():
        found, key = any(matches(name, [pattern]) for name in names), f"{where}.modules_to_train"
        check(found, key, pattern, "patterns of names of the network", f"It has {known}.")
        free = not any(matches(name, [pattern]) for name in packed)
        check(free, key, pattern, f"of weights that {where}.quantization_config leaves as they are")


def check_task(known: Known, task: str, purpose: str) -> int | None:
    """The number of tokens of an image that a task writes or reads as codes; None where there is
    none, or where only checkpoints that are not here say it. Raises ConfigError, which says the
    purpose: a family without such a task, no image tokenizer, or an impossible image size."""
    model, config = known.model, known.config or find_published(known.model.path)[1]
    layouts = [family.LAYOUTS[task] for family in known.families if task in family.LAYOUTS]
    able = " or ".join(sorted(n for n, family in FAMILIES.items() if task in family.LAYOUTS))
    kind = config.get("model_type") or config.get("_class_name")
    allowed, advice = f"a checkpoint of type {able} {purpose}", f"Its config.json says {kind}."
    check(bool(layouts), "model.path", model.path, allowed, advice)
    if not all(layout.needs_vq for layout in layouts):
        return None
    advice = f"Name the one that the checkpoint was trained with, such as {PUBLIC_VQ}."
    check(model.vq is not None, "model.vq", None, f"an image tokenizer {purpose}", advice)
    patch, written, sides = known.patch, writes_images(task), {"image_size": model.image_size}
    if written:
        sides |= {"image_height": model.image_height, "image_width": model.image_width}
    for key, side in sides.items():
        whole = patch is None or side is None or side % patch == 0
        check(whole, f"model.{key}", side, f"a multiple of {patch}, a token's side")
    asked = model.image_size or (written and model.image_height and model.image_width)
    given = patch if asked else known.config
    return None if given is None else known.count_image_tokens(written)


def check_sampling(known: Known, sampler: SamplerConfig, where: str = "sampler") -> None:
    """Raise a ConfigError for a sampler of another kind of generation than the policy is known to
    be, or a cache that its network is known not to have; `where` is the dotted key."""
    kinds = {family.KIND for family in known.families}
    names = sorted(name for name, kind in SAMPLER_KINDS.items() if kind in kinds)
    allowed = f"{' or '.join(names)}, as {known.model.path} is {' or '.join(sorted(kinds))}"
    served = SAMPLERS[sampler.name].prepare is not None
    advice = "Servers of masked models do not say in which step a token was written."
    fits = not kinds or sampler.name in names
    check(fits, f"{where}.name", sampler.name, allowed, advice if served else "")
    raw, cache = known.config or {}, getattr(sampler, "cache", "none")
    family = find_family(raw)
    if cache != "none" and family is not None:
        with torch.device("meta"):
            network = family.network(raw)
        able = network.can_refresh if cache == "refresh" else network.can_cache
        advice = "The network of this checkpoint keeps no such keys and values."
        check(able, f"{where}.cache", cache, "none", advice)


def check_network_blocks(
    known: Known, sampler: SamplerConfig, length: int | None, where: str, length_key: str
) -> None:
    """Compare a sampler at the dotted key `where` with the blocks in which the policy's network is
    known to write, for a `length` at `length_key`, None for the default of texts. Raises
    ConfigError: blocks of another size, or that do not divide what they must."""
    own = known.blocks
    if own is None:
        return
    size = own["block_size"]
    allowed = f"null or {size}, the block size of the network"
    check(sampler.block_size in (None, size), f"{where}.block_size", sampler.block_size, allowed)
    n = length or MAX_COMPLETION_LENGTH
    right = own.get("block_alignment") == "right"
    allowed = f"a multiple of {size}, the block size of the network"
    check(not right or n % size == 0, length_key, n, allowed, "Or set model.block_alignment: left.")
    number = -(-n // size)
    allowed = f"a multiple of the {number} blocks of {size} positions that the network writes"
    check(sampler.steps % number == 0, f"{where}.steps", sampler.steps, allowed)


def check_prompts(known: Known, task: str, prompts: Sequence[Prompt]) -> None:
    """Refuse prompts that the policy's checkpoint cannot take, as far as its family is known.
    Raises ConfigError: one with too few or too many images; the message names its place."""
    layouts = [family.LAYOUTS[task] for family in known.families if task in family.LAYOUTS]
    for prompt in prompts if len(layouts) == 1 else ():
        try:
            layouts[0].check(prompt)
        except ValueError as error:
            raise ConfigError(f"{prompt.place or 'a prompt'}: {error}") from error
