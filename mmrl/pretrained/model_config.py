"""Settings of the policy: its checkpoint, its precision, and what of it is trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal

from mmrl.config import ConfigError, Settings, above, at_least, check, filled, one_of
from mmrl.models.image_tokenizers import OWN_VQ
from mmrl.models.layouts.layout_config import LayoutOptions
from mmrl.models.network.core_config import ROLES
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.models.task_names import EDITS

LARGEST_RANK = 4096
"""Width of the public networks; an adapter of this rank has more weights than they."""


@dataclass(kw_only=True)
class LoraConfig(Settings):
    """Low-rank adapters; peft's names."""

    where: ClassVar[str] = "model.lora"

    r: Annotated[int, at_least(1, up_to=LARGEST_RANK)] = 16
    """Rank."""
    lora_alpha: int = 32
    """Scale: the update is alpha / r times the product."""
    target_modules: Annotated[
        list[Annotated[str, one_of(ROLES)]], filled(f"some of {', '.join(ROLES)}")
    ] = field(default_factory=lambda: list(ROLES))
    """Layers by role: q, k, v, o, gate, up, down."""
    use_rslora: bool = False
    """Divide alpha by the root of the rank instead of the rank (arXiv 2312.03732)."""
    use_dora: bool = False
    """Train the length of each row of a weight apart from its direction (arXiv 2402.09353)."""


@dataclass(kw_only=True)
class CheckpointConfig:
    """The checkpoint of a policy and its precision."""

    path: str = ""
    """Directory or hub id of the policy, or of a PEFT adapter of one."""

    vq: Annotated[str | None, filled("a directory or a hub id")] = OWN_VQ
    """Directory or hub id of its image tokenizer; null for text only. `auto` takes the one that the
    checkpoint names in its tokenizer_config.json or holds in the folder `vqvae`, else
    showlab/magvitv2."""

    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    """Of the weights. In float64 the tokens of a row do not depend on what it is batched with."""


@dataclass(kw_only=True)
class ModelConfig(LayoutOptions, CheckpointConfig, Settings):
    """The policy's checkpoint, its precision, and which of its weights are trained."""

    where: ClassVar[str] = "model"

    attn_implementation: Literal["auto", "sdpa", "eager"] = "auto"
    """Attention kernel of scoring and its backward pass; `auto` follows device and precision, see
    `mmrl.models.network.attention`. Sampling always takes `sdpa`."""
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
        super().__post_init__()
        given = self.quantization_config is not None
        allowed = "null without model.lora"
        check(not given or self.lora is not None, "model.quantization_config", "given", allowed)
        if self.modules_to_train == [] and not (self.lora or self.train_vision_tower):
            raise ConfigError("model.modules_to_train is empty: name something, or take null.")


@dataclass(kw_only=True)
class OldPolicyConfig(Settings):
    """The old policy of contrasts: old <- d old + (1 - d) policy after the updates of every step,
    with d = min(`initial` + `uprate` max(0, n - `flat_steps`), `uphold`) after n optimiser steps;
    the rules and names of DiffusionNFT and UniRL."""

    where: ClassVar[str] = "old_policy"

    initial: Annotated[float, at_least(0, up_to=1)] = 0.0
    """d at the start."""
    uprate: Annotated[float, at_least(0)] = 0.001
    """By how much d rises with each optimiser step."""
    flat_steps: Annotated[int, at_least(0)] = 0
    """Optimiser steps before it rises."""
    uphold: Annotated[float, at_least(0, up_to=1)] = 0.5
    """Largest d."""

    def decay(self, steps: int) -> float:
        """d after so many optimiser steps."""
        return min(self.initial + self.uprate * max(0, steps - self.flat_steps), self.uphold)


@dataclass(kw_only=True)
class PolicyConfig(ModelConfig):
    """One of several policies: its model, and settings of the run that differ for it."""

    where: ClassVar[str] = "models"

    frozen: bool = False
    """Whether it only samples, or answers what others ask."""
    num_mini_batches: Annotated[int | None, at_least(1)] = None
    """As in the run; null takes that."""
    per_device_train_batch_size: Annotated[int | None, at_least(1)] = None
    """As in the run; null takes that."""
    optimizer: Literal["adamw", "adamw_8bit", "sgd"] | None = None
    """As in the run; null takes that."""
    learning_rate: Annotated[float | None, above(0)] = None
    """As in the run; null takes that."""
    lr_scheduler_type: str | None = None
    """As in the run; null takes that."""
    warmup_steps: Annotated[int | None, at_least(0)] = None
    """As in the run; null takes that."""
    weight_decay: Annotated[float | None, at_least(0)] = None
    """As in the run; null takes that."""
    max_grad_norm: Annotated[float | None, at_least(0)] = None
    """As in the run; null takes that."""
    old_policy: OldPolicyConfig | None = None
    """As in the run; null takes that."""
    sync_ref_model: bool | None = None
    """As in the run; null takes that."""

    def as_model(self) -> ModelConfig:
        """The model alone."""
        return ModelConfig(**{f.name: getattr(self, f.name) for f in fields(ModelConfig)})

    def training(self) -> dict[str, Any]:
        """The settings of the run that differ."""
        model = {f.name for f in fields(ModelConfig)}
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in model}
        return {name: value for name, value in own.items() if value is not None}


def layout_options(model: ModelConfig) -> dict[str, Any]:
    """Arguments of `LayoutConfig`."""
    return {item.name: getattr(model, item.name) for item in fields(LayoutOptions)}


def policy_options(model: ModelConfig) -> dict[str, Any]:
    """Arguments of `load_policy`."""
    return {
        "path_or_hub_id": model.path,
        "vq": model.vq,
        "dtype": model.dtype,
        "train_vision_tower": model.train_vision_tower,
        "merge_adapter": model.lora is None,
        "quantization_config": model.quantization_config,
        **layout_options(model),
    }


def matches(name: str, wanted: Iterable[str]) -> bool:
    """Whether a parameter is one of those that patterns name, or in a module they name."""
    return any(fnmatchcase(name, p) or fnmatchcase(name, f"{p}.*") for p in wanted)


def part_of(name: str) -> str:
    """The part of a network that a parameter belongs to: a module, of the vision tower two deep."""
    first, _, rest = name.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first == "vision" else first


def check_image_guidance(scale: float, task: str, where: str) -> None:
    """Raise a ConfigError for guidance by the source image of a task that has none."""
    allowed = f"0, the task {task} has no source image"
    check(scale == 0 or task in EDITS, f"{where}.image_guidance_scale", scale, allowed)
