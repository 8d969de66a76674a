"""The network that supervised training of a policy starts from, and how it is saved."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from mmrl.config import Settings, check
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.pretrained.model_config import LoraConfig


@dataclass(kw_only=True)
class ObjectiveLora(LoraConfig):
    """Low-rank adapters of a supervised run; peft's names."""

    where: ClassVar[str] = "objective.lora"


@dataclass(kw_only=True)
class StartConfig(Settings):
    """Options of the objectives that train a policy."""

    where: ClassVar[str] = "objective"

    model: str = ""
    """Checkpoint to continue from."""
    new_weights: bool = False
    """Draw the weights from the seed; of `model` only config.json and the tokenizer are read, and a
    directory with these two is enough."""
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
        allowed = "a checkpoint, or with new_weights a directory with config.json and tokenizer"
        check(self.model != "", "objective.model", self.model, allowed)
        allowed = "null with objective.new_weights, which would stay random"
        check(self.lora is None or not self.new_weights, "objective.lora", "given", allowed)
        key, given = "objective.quantization_config", self.quantization_config is not None
        check(not given or self.lora is not None, key, "given", "null without objective.lora")
