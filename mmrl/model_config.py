"""The policy's checkpoint: its settings, and the checks that are possible before it is loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from mmrl.config import ConfigError, check, check_choice
from mmrl.config.checks import is_hub_id
from mmrl.types import Prompt
from models.image_tokenizers import PUBLIC_VQ, SUBFOLDER
from models.layouts.layout_config import (
    MAX_COMPLETION_LENGTH,
    BlockAlignment,
    ImageFit,
    LayoutConfig,
    MaskPolicy,
)
from models.network.core_config import ROLES
from models.quantization_config import QuantizationConfig
from models.task_names import EDITS, writes_images

if TYPE_CHECKING:
    from mmrl.samplers import SamplerConfig
    from models.families.family import Family
    from models.network.network import Network

HOLDERS = ("Alpha-VLLM/Lumina-DiMOO", "amused/")
"""Beginnings of hub ids of checkpoints that hold their own image tokenizer."""
PUBLIC_PATCH = 16
"""Side in pixels of what a token shows, in the published image tokenizers."""
LARGEST_IMAGE = 4096
"""Pixels a side: 65,536 tokens of MMaDA."""
LARGEST_RANK = 4096
"""Width of the public networks; an adapter of this rank has more weights than they."""


@dataclass(kw_only=True)
class LoraConfig:
    """Low-rank adapters; peft's names."""

    where: ClassVar[str] = "model.lora"

    r: int = 16
    """Rank."""
    lora_alpha: int = 32
    """Scale: the update is alpha / r times the product."""
    target_modules: list[str] = field(default_factory=lambda: list(ROLES))
    """Layers by role: q, k, v, o, gate, up, down."""
    lora_dropout: float = 0.0
    """Probability of dropping an entry of an adapter's input where gradients are taken. New and old
    log-probs share the draws, see `mmrl.training.adapter_dropout`."""
    use_rslora: bool = False
    """Divide alpha by the root of the rank instead of the rank (arXiv 2312.03732)."""
    use_dora: bool = False
    """Train the length of each row of a weight apart from its direction (arXiv 2402.09353)."""

    def __post_init__(self) -> None:
        check(1 <= self.r <= LARGEST_RANK, f"{self.where}.r", self.r, f"from 1 to {LARGEST_RANK}")
        p = self.lora_dropout
        check(0 <= p < 1, f"{self.where}.lora_dropout", p, "from 0 to below 1")
        chosen = self.target_modules
        check(bool(chosen), f"{self.where}.target_modules", chosen, f"some of {', '.join(ROLES)}")
        for role in chosen:
            check_choice(f"{self.where}.target_modules", role, ROLES)


@dataclass(kw_only=True)
class ModelConfig:
    """The policy's checkpoint, its precision, and which of its weights are trained."""

    path: str = ""
    """Directory or hub id of the policy, or of a PEFT adapter of one."""
    vq: str | None = PUBLIC_VQ
    """Directory or hub id of its image tokenizer; null for text only. A checkpoint that holds its
    own, in the folder `vqvae`, takes that in place of the default."""
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    """Of the weights. In float64 the tokens of a row do not depend on what it is batched with."""
    max_prompt_length: int = 256
    """Longest prompt in tokens. Longer ones are cut for images and left out, counted, for text."""
    chat_template: bool | str | None = None
    """Whether a text prompt becomes a user's message; null follows the tokenizer. The path of a
    Jinja file takes that template in place of the tokenizer's; it is saved with the model."""
    image_size: int | None = None
    """Side in pixels of images that are codes, written or in prompts; null follows the
    checkpoint."""
    image_height: int | None = None
    """Height in pixels of images that are written, where it is not `image_size`."""
    image_width: int | None = None
    """Width in pixels of images that are written, where it is not `image_size`."""
    image_fit: ImageFit = "crop"
    """How an image in a prompt becomes that square: its shorter side is resized and the middle
    kept, or it is squashed, as MMaDA does with charts, documents and diagrams. A vision tower
    tiles images of any shape and reads neither."""
    mask_policy: MaskPolicy | None = None
    """Whether padding is attended to; null follows the checkpoint."""
    block_size: int | None = None
    """Positions of a block of a network that writes block by block (SDAR, TraDo); null follows its
    config.json or its name."""
    block_alignment: BlockAlignment | None = None
    """Where the blocks of such a network begin: `left` at the first token, as its public samplers
    count, or `right` at the first token of the response, as TraceRL's training counts; null follows
    its config.json."""
    attn_implementation: Literal["auto", "sdpa", "eager", "flex"] = "auto"
    """Attention kernel of scoring and its backward pass; `auto` follows device and precision, see
    `models.network.attention`. Sampling always takes `sdpa`."""
    gradient_checkpointing: bool = False
    """Recompute blocks, and layers of a vision tower that is trained, in the backward pass: less
    memory, more time."""
    lora: LoraConfig | None = None
    """Train a low-rank adapter instead of all weights. Where `path` is an adapter it is continued;
    without `lora` it is merged into the weights, which are trained."""
    quantization_config: QuantizationConfig | None = None
    """Hold the weights beside the adapter in 4 bits, by bitsandbytes; only with `lora`."""
    train_vision_tower: bool = False
    """Whether the vision tower of a model that has one is trained as well."""
    modules_to_train: list[str] | None = None
    """What is trained, as patterns of names: `vision.projector`, `blocks.*.attn`, `blocks.3*`. Null
    is everything but the vision tower; with `lora` nothing, and what is named is trained in full
    besides the adapter."""

    def __post_init__(self) -> None:
        length = self.max_prompt_length
        check(length >= 1, "model.max_prompt_length", length, "at least 1")
        check(self.vq != "", "model.vq", self.vq, "null, a directory or a hub id")
        for key in ("image_size", "image_height", "image_width"):
            size = getattr(self, key)
            fits = size is None or 1 <= size <= LARGEST_IMAGE
            check(fits, f"model.{key}", size, f"null or from 1 to {LARGEST_IMAGE}")
        size = self.block_size
        check(size is None or size >= 1, "model.block_size", size, "null or at least 1")
        given = self.quantization_config is not None
        allowed = "null without model.lora"
        check(not given or self.lora is not None, "model.quantization_config", "given", allowed)
        if self.modules_to_train == [] and not (self.lora or self.train_vision_tower):
            raise ConfigError("model.modules_to_train is empty: name something, or take null.")


def policy_options(model: ModelConfig) -> dict[str, Any]:
    """Arguments of `load_policy`."""
    names = {
        "vq",
        "dtype",
        "train_vision_tower",
        "quantization_config",
        *(item.name for item in fields(LayoutConfig)),
    }
    options = {name: value for name, value in vars(model).items() if name in names}
    return {"path_or_hub_id": model.path, "merge_adapter": model.lora is None, **options}


def check_checkpoints(model: ModelConfig) -> None:
    """Check where the checkpoints are and, of directories, what the headers of their files say.

    Raises:
        ConfigError: one that is neither a directory nor possibly on the hub.
        FileNotFoundError, ValueError: a directory that `load_policy` would refuse.
    """
    from models.image_tokenizers.image_tokenizer import outline_vq
    from models.layouts.chat_templates import read_template
    from models.policy import outline_policy

    if isinstance(model.chat_template, str):
        try:
            read_template(model.chat_template)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigError(f"model.{error}") from error
    if model.train_vision_tower:
        check_sight(model, "to train its vision tower")
    names = {item.name for item in fields(LayoutConfig)}
    options = LayoutConfig(**{name: v for name, v in vars(model).items() if name in names})
    check_continued(model)
    for key, path, look in (
        (
            "model.path",
            model.path,
            lambda found: check_patterns(outline_policy(found, options), model),
        ),
        ("model.vq", own_vq(model), outline_vq),
    ):
        directory = Path(path or "").expanduser()
        here = path is None or directory.is_dir() or is_hub_id(path)
        check(here, key, path, "an existing directory or a hub id", "There is neither.")
        if path is not None and directory.is_dir():
            look(directory)


def check_continued(model: ModelConfig, where: str = "model") -> None:
    """Compare `lora` with the adapter that `path` is, if it is one on this machine.

    Raises:
        ConfigError: it has another rank, scale or variant, or is of other layers.
    """
    from models.adapter_source import ADAPTER_CONFIG, read_adapter_config
    from models.adapter_weights import read_adapter
    from models.loading import names_of, outline

    directory = adapter_directory(model.path)
    if model.lora is None or directory is None:
        return
    stored, file = read_adapter_config(directory), directory / ADAPTER_CONFIG
    network = outline(directory)
    layers = read_adapter(directory, names_of(network), headers=True).layers
    found = {key: stored.get(key) or False for key in ("r", "lora_alpha", "use_rslora", "use_dora")}
    known = network.layer_roles.items()
    ends = {role for role, some in known if any(n.endswith(tuple(some)) for n in layers)}
    found["target_modules"] = [role for role in ROLES if role in ends]
    for key, value in found.items():
        given = getattr(model.lora, key)
        same = set(given) == ends if key == "target_modules" else given == value
        advice = "Take that, or merge the adapter first: python scripts/merge_adapter.py."
        check(same, f"{where}.lora.{key}", given, f"{value!r}, which {file} has", advice)


def adapter_directory(path_or_hub_id: str) -> Path | None:
    """The directory of an adapter that is here or cached; None for anything else."""
    from models.adapter_source import ADAPTER_CONFIG, is_adapter

    file = known_file(path_or_hub_id, ADAPTER_CONFIG)
    return file.parent if file is not None and is_adapter(file.parent) else None


def check_patterns(network: Network, model: ModelConfig, where: str = "model") -> None:
    """Refuse patterns that name nothing, or nothing that can be trained.

    Args:
        network: of the checkpoint; its weights are not needed.
        model: settings.
        where: dotted key of the settings, for messages.

    Raises:
        ConfigError: a pattern fits no parameter.
    """
    from models.quantization import list_quantized

    names = {n for n, _ in network.named_parameters()} - network.unread
    packed = list_quantized(network) if model.quantization_config is not None else []
    known = ", ".join(dict.fromkeys(part_of(name) for name, _ in network.named_parameters()))
    for pattern in model.modules_to_train or ():
        found, key = any(matches(name, [pattern]) for name in names), f"{where}.modules_to_train"
        check(found, key, pattern, "patterns of names of the network", f"It has {known}.")
        free = not any(matches(name, [pattern]) for name in packed)
        check(free, key, pattern, f"of weights that {where}.quantization_config leaves as they are")


def matches(name: str, wanted: Iterable[str]) -> bool:
    """Whether a parameter is one of those that patterns name, or in a module they name."""
    return any(fnmatchcase(name, p) or fnmatchcase(name, f"{p}.*") for p in wanted)


def part_of(name: str) -> str:
    """The part of a network that a parameter belongs to: a module, of the vision tower two deep."""
    first, _, rest = name.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first == "vision" else first


def families(model: ModelConfig) -> list[Family]:
    """The family of the policy's checkpoint, see `models.families`; all of them where
    the checkpoint is not on this machine."""
    from models.families import FAMILIES, find_family

    family = find_family(known_config(model.path) or {})
    return list(FAMILIES.values()) if family is None else [family]


def check_sight(model: ModelConfig, purpose: str) -> None:
    """Raise a ConfigError where the policy's checkpoint is known to have no vision tower."""
    layouts = [layout for family in families(model) for layout in family.LAYOUTS.values()]
    sees = any(layout.needs_tower for layout in layouts)
    check(sees, "model.path", model.path, f"a checkpoint with a vision tower {purpose}")


def check_task(model: ModelConfig, task: str, purpose: str) -> int | None:
    """Check what is known of the policy's checkpoints against what a task needs of them.

    Args:
        model: settings.
        task: its name.
        purpose: what it is for, for messages.

    Returns:
        The number of tokens of an image that is written or read as codes; None where there is
        none, or where only checkpoints that are not here say it.

    Raises:
        ConfigError: a family without such a task, no image tokenizer, or an impossible image size.
    """
    from models.families import FAMILIES

    layouts = [family.LAYOUTS[task] for family in families(model) if task in family.LAYOUTS]
    able = " or ".join(sorted(n for n, family in FAMILIES.items() if task in family.LAYOUTS))
    config = known_config(model.path) or {}
    kind = config.get("model_type") or config.get("_class_name")
    allowed, advice = f"a checkpoint of type {able} {purpose}", f"Its config.json says {kind}."
    check(bool(layouts), "model.path", model.path, allowed, advice)
    if not all(layout.needs_vq for layout in layouts):
        return None
    advice = f"Name the one that the checkpoint was trained with, such as {PUBLIC_VQ}."
    check(model.vq is not None, "model.vq", None, f"an image tokenizer {purpose}", advice)
    return _known_image_tokens(model, task)


def check_cache(model: ModelConfig, cache: str, where: str = "sampler") -> None:
    """Raise a ConfigError for a sampler's cache where the policy's network is known to have none.

    Args:
        model: settings.
        cache: of the sampler.
        where: dotted key of the sampler, for messages.
    """
    import torch

    from models.families import find_family

    raw = known_config(model.path) or {}
    family = find_family(raw)
    if cache == "none" or family is None:
        return
    with torch.device("meta"):
        network = family.network(raw)
    able = network.can_refresh if cache == "refresh" else network.can_cache
    advice = "The network of this checkpoint keeps no such keys and values."
    check(able, f"{where}.cache", cache, "none", advice)


def known_blocks(model: ModelConfig) -> dict[str, Any] | None:
    """Size and alignment of the blocks in which the policy's network writes, under the keys of its
    config.json; None where it does not write in blocks, or is not on this machine."""
    from models.families import find_family

    raw = known_config(model.path)
    complete = getattr(find_family(raw or {}), "complete_config", None)
    if raw is None or complete is None:
        return None
    chosen = {"block_size": model.block_size, "block_alignment": model.block_alignment}
    stated = {key: value for key, value in chosen.items() if value is not None}
    return {**complete(raw, Path(model.path)), **stated}


def check_network_blocks(
    model: ModelConfig, sampler: SamplerConfig, length: int | None, where: str, length_key: str
) -> None:
    """Compare a sampler with the blocks in which the policy's network is known to write.

    Args:
        model: settings.
        sampler: its settings.
        length: response positions; None for the default of texts.
        where: dotted key of the sampler, for messages.
        length_key: that of the length.

    Raises:
        ConfigError: blocks of another size, or that do not divide what they must.
    """
    own = known_blocks(model)
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


def check_image_guidance(scale: float, task: str, where: str) -> None:
    """Raise a ConfigError for guidance by the source image of a task that has none."""
    allowed = f"0, the task {task} has no source image"
    check(scale == 0 or task in EDITS, f"{where}.image_guidance_scale", scale, allowed)


def check_prompts(model: ModelConfig, task: str, prompts: Sequence[Prompt]) -> None:
    """Refuse prompts that the policy's checkpoint cannot take, as far as its family is known.

    Raises:
        ConfigError: one with too few or too many images; the message names its place.
    """
    layouts = [family.LAYOUTS[task] for family in families(model) if task in family.LAYOUTS]
    for prompt in prompts if len(layouts) == 1 else ():
        try:
            layouts[0].check(prompt)
        except ValueError as error:
            raise ConfigError(f"{prompt.place or 'a prompt'}: {error}") from error


def _known_image_tokens(model: ModelConfig, task: str) -> int | None:
    raw, patch, written = known_config(model.path), patch_size(model), writes_images(task)
    sides = {"image_size": model.image_size}
    if written:
        sides |= {"image_height": model.image_height, "image_width": model.image_width}
    for key, side in sides.items():
        whole = patch is None or side is None or side % patch == 0
        check(whole, f"model.{key}", side, f"a multiple of {patch}, a token's side")
    if model.image_size is None and not all(list(sides.values())[1:] or [None]):
        return None if raw is None else image_tokens(model, raw, written)
    return None if patch is None else image_tokens(model, raw or {}, written)


def image_tokens(model: ModelConfig, raw: Mapping[str, Any], written: bool = True) -> int:
    """Tokens of an image, from the image size or else the checkpoint.

    Args:
        model: settings.
        raw: `config.json` of the policy.
        written: whether it is an image that is written, rather than one in a prompt.
    """
    from models.families import find_family, mmada

    patch = patch_size(model) or PUBLIC_PATCH
    if model.image_size is None:
        side = math.isqrt(getattr(find_family(raw), "count_codes", mmada.count_codes)(raw))
    else:
        side = model.image_size // patch
    if not written:
        return side**2
    chosen = (model.image_height, model.image_width)
    return math.prod(side if pixels is None else pixels // patch for pixels in chosen)


def patch_size(model: ModelConfig) -> int | None:
    """Side in pixels of what a token of an image shows; None where the tokenizer is not here."""
    import torch

    from models.image_tokenizers.image_tokenizer import build_vq

    own = own_vq(model)
    if own == model.path:
        return PUBLIC_PATCH
    known = {} if own == PUBLIC_VQ else known_config(own or "")
    if known is None:
        return None
    with torch.device("meta"):
        return build_vq(known).downsample


def own_vq(model: ModelConfig) -> str | None:
    """The image tokenizer of the policy: the one that its checkpoint holds where `vq` is the
    default, else `vq`. Of a checkpoint that is not here it is the checkpoint itself."""
    if model.vq != PUBLIC_VQ:
        return model.vq
    inside = known_file(model.path, f"{SUBFOLDER}/config.json")
    if inside is not None:
        return str(inside.parent)
    return model.path if model.path.startswith(HOLDERS) else model.vq


def known_config(path_or_hub_id: str) -> dict[str, Any] | None:
    """`config.json` of a checkpoint on this machine, a directory or cached, that of the base for an
    adapter, and what `read_pipeline` makes of a pipeline; None if neither.

    Raises:
        ConfigError: it is not JSON.
        FileNotFoundError, ValueError: see `read_pipeline`.
    """
    from models.adapter_source import find_base
    from models.families.pipeline import INDEX, read_pipeline

    path, adapter = path_or_hub_id, adapter_directory(path_or_hub_id)
    if adapter is not None:
        try:
            path = str(find_base(adapter))
        except ValueError as error:
            raise ConfigError(str(error)) from error
    file, index = known_file(path, "config.json"), known_file(path, INDEX)
    if file is None and index is not None:
        try:
            return read_pipeline(index.parent)
        except FileNotFoundError:
            if Path(path).expanduser().is_dir():
                raise
    if file is None:
        return None
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ConfigError(f"'{file}' is not JSON ({error}). Copy or download it again.") from error


def known_file(path_or_hub_id: str, name: str) -> Path | None:
    """A file of a checkpoint on this machine, a directory or cached; None where it has none."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    file = Path(path_or_hub_id).expanduser() / name
    if file.is_file():
        return file
    try:
        cached = try_to_load_from_cache(path_or_hub_id, name)
    except HFValidationError:
        return None
    return Path(cached) if isinstance(cached, str) else None
