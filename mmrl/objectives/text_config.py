"""Options of the `text` objective."""

from dataclasses import dataclass

from mmrl.config import check
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.objectives.data_config import ImageCodesConfig, SourceConfig
from mmrl.objectives.start_config import StartConfig


@dataclass(kw_only=True)
class CompletionConfig(StartConfig, SourceConfig, ImageCodesConfig):
    """Training of a LLaDA-, MMaDA- or LLaDA-V-type model on completions of prompts."""

    eval_data: str = ""
    """Held-out data for `eval_steps`, read like `data`; empty evaluates nothing."""
    eval_split: str | None = None
    """Split of `eval_data`, if it is a hub data set."""
    vq: str = ""
    """Path or hub id of the image tokenizer, for images under a MMaDA-type checkpoint."""
    image_fit: ImageFit = "crop"
    """How an image becomes the square that is encoded, as `model.image_fit` of the policy that is
    trained; only with `vq`."""
    train_vision_tower: bool = False
    """Train the vision tower too; its projector always is."""
    modules_to_train: list[str] | None = None
    """Parts to train, as patterns of names: `vision.projector`, `blocks.*.attn`. Null trains
    everything but the vision tower; with `lora` nothing, and what is named is trained in full
    besides the adapter."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "crop without objective.vq: a vision tower tiles images of any shape"
        fits = bool(self.vq) or self.image_fit == "crop"
        check(fits, "objective.image_fit", self.image_fit, allowed)
        allowed = "null with objective.new_weights, which would stay random"
        fits = self.modules_to_train is None or not self.new_weights
        check(fits, "objective.modules_to_train", self.modules_to_train, allowed)
