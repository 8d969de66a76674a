"""Options of the `text` objective."""

from dataclasses import dataclass, field
from typing import Literal

from mmrl.config import check
from mmrl.objectives.network_config import NetworkConfig
from mmrl.objectives.source_config import SourceConfig
from mmrl.objectives.vision_config import VisionConfig
from models.layouts.layout_config import ImageFit


@dataclass(kw_only=True)
class CompletionConfig(SourceConfig):
    """Training of a LLaDA-, MMaDA- or LLaDA-V-type model on completions of prompts."""

    eval_data: str = ""
    """The same as `data` for `eval_steps`; empty evaluates nothing."""
    eval_split: str | None = None
    """Its split."""
    eval_examples: int = 256
    """At most this many of them."""
    model: str = ""
    """Checkpoint to continue from; a new network when empty."""
    tokenizer: str = ""
    """Directory of the tokenizer of a new network."""
    vq: str = ""
    """Path or hub id of the image tokenizer, for images under a MMaDA-type checkpoint."""
    image_fit: ImageFit = "crop"
    """How an image becomes the square whose codes are read, `crop` or `squash`, as
    `model.image_fit` of the policy it is to become; only with `vq`."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Sizes of a new network; unused when `model` is given."""
    vision: VisionConfig | None = None
    """Sizes of the vision tower of a new network, which makes it one of LLaDA-V's type; null for
    one of LLaDA's, without."""
    train_vision_tower: bool = False
    """Whether the vision tower is trained as well; its projector always is."""
    modules_to_train: list[str] | None = None
    """What is trained, as patterns of names: `vision.projector`, `blocks.*.attn`. Null is
    everything but the vision tower."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass, those of a trained vision tower too."""
    attn_implementation: Literal["auto", "sdpa", "eager"] = "auto"
    """Attention kernel; `auto` follows device and precision, see `models.network.attention`."""
    save_dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Stored precision of the saved weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.eval_examples >= 1, "objective.eval_examples", self.eval_examples, "at least 1")
        check(
            bool(self.model) != bool(self.tokenizer),
            "objective.model, objective.tokenizer",
            (self.model, self.tokenizer),
            "a checkpoint to continue from, or a tokenizer for a new network",
        )
        check(
            bool(self.model) or not self.vq,
            "objective.vq",
            self.vq,
            "empty for a new network",
            "It reads no codes of images.",
        )
        check(
            bool(self.vq) or self.image_fit == "crop",
            "objective.image_fit",
            self.image_fit,
            "crop without objective.vq",
            "A vision tower tiles images of any shape.",
        )
        check(
            self.vision is None or (not self.model and self.train_vision_tower),
            "objective.vision",
            "given",
            "null with a model to continue, and with train_vision_tower without",
            "A new tower that is not trained stays random.",
        )
        check(
            self.modules_to_train is None or bool(self.model),
            "objective.modules_to_train",
            self.modules_to_train,
            "null for a new network",
        )
