"""The network that supervised training of a policy starts from, and how it is saved."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar, Literal

from mmrl.config import Settings, at_least, check
from mmrl.models.network.core_config import CoreConfig
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.pretrained.model_config import LoraConfig


@dataclass(kw_only=True)
class NetworkConfig:
    """Sizes of a new network, by the names of LLaDA's config.json."""

    d_model: int = 192
    """Width."""
    n_layers: int = 6
    """Layers."""
    n_heads: int = 6
    """Attention heads."""
    mlp_hidden_size: int = 512
    """Width of the MLPs."""
    rope_theta: float = 500000.0
    """Base of the rotary embedding."""

    def core(self, rows: int) -> CoreConfig:
        """The sizes of the core with `rows` embedding rows."""
        return CoreConfig(
            hidden_size=self.d_model,
            num_layers=self.n_layers,
            num_heads=self.n_heads,
            num_kv_heads=self.n_heads,
            head_dim=self.d_model // self.n_heads,
            mlp_size=self.mlp_hidden_size,
            vocab_size=rows,
            rope_theta=self.rope_theta,
        )


@dataclass(kw_only=True)
class VisionConfig(Settings):
    """Sizes of a new vision tower, by the names of SigLIP's config.json, and how images are tiled.

    As in LLaDA-V the features are those before the last layer, so the last of `num_hidden_layers`
    is neither built nor stored.
    """

    where: ClassVar[str] = "objective.vision"

    hidden_size: Annotated[int, at_least(1)] = 128
    """Width."""
    intermediate_size: int = 256
    """Width of the MLPs."""
    num_hidden_layers: int = 5
    """Layers, of which the last is not built."""
    num_attention_heads: Annotated[int, at_least(1)] = 4
    """Heads of attention."""
    image_size: Annotated[int, at_least(1)] = 32
    """Side of a tile in pixels."""
    patch_size: Annotated[int, at_least(1)] = 8
    """Side of a patch in pixels."""
    image_grid_pinpoints: str = "(1x1),...,(1x1)"
    """Grids of tiles to choose from, beside the one tile of the whole image."""
    max_tiles: int = 1
    """A larger grid is shrunk to about this many tiles: the number in `anyres_max_`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = {"hidden_size": self.num_attention_heads, "image_size": self.patch_size}
        for key, part in parts.items():
            whole = getattr(self, key)
            check(whole % part == 0, f"{self.where}.{key}", whole, f"a multiple of {part}")

    @property
    def tower(self) -> dict[str, int]:
        """The sizes alone."""
        rest = ("image_grid_pinpoints", "max_tiles")
        return {key: value for key, value in asdict(self).items() if key not in rest}


@dataclass(kw_only=True)
class ObjectiveLora(LoraConfig):
    """Low-rank adapters of a supervised run; peft's names."""

    where: ClassVar[str] = "objective.lora"


@dataclass(kw_only=True)
class StartConfig(Settings):
    """Options of the objectives that train a policy."""

    where: ClassVar[str] = "objective"

    model: str = ""
    """Checkpoint to continue from; a new network when empty."""
    tokenizer: str = ""
    """Directory of the tokenizer of a new network."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Sizes of a new network; unused when `model` is given."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights that are not trained, where the run computes in bfloat16; elsewhere they are
    float32. What is trained is float32 in any case, as accelerate's mixed precision and peft's
    adapters are."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass, also those of a trained vision tower."""
    lora: ObjectiveLora | None = None
    """Train a low-rank adapter of `model` instead of all weights."""
    quantization_config: QuantizationConfig | None = None
    """Hold the weights beside the adapter in 4 bits, by bitsandbytes; only with `lora`."""
    attn_implementation: Literal["auto", "sdpa", "eager", "flex"] = "auto"
    """Attention kernel; `auto` follows device and precision: `mmrl.models.network.attention`."""
    save_dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Stored precision of the saved weights; the factors of an adapter keep theirs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            bool(self.model) != bool(self.tokenizer),
            "objective.model, objective.tokenizer",
            (self.model, self.tokenizer),
            "a checkpoint to continue from, or a tokenizer for a new network",
        )
        allowed = "null for a new network, whose random weights would stay"
        check(self.lora is None or bool(self.model), "objective.lora", "given", allowed)
        key, given = "objective.quantization_config", self.quantization_config is not None
        check(not given or self.lora is not None, key, "given", "null without objective.lora")
