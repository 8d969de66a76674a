"""Options of the `text` objective."""

from dataclasses import dataclass

from mmrl.config import check
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.objectives.data_config import ImageCodesConfig, SourceConfig
from mmrl.objectives.start_config import StartConfig, VisionConfig


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
    vision: VisionConfig | None = None
    """Sizes of the vision tower of a new network, which is then of LLaDA-V's type; null for LLaDA's
    type, without a tower."""
    train_vision_tower: bool = False
    """Train the vision tower too; its projector always is."""
    modules_to_train: list[str] | None = None
    """Parts to train, as patterns of names: `vision.projector`, `blocks.*.attn`. Null trains
    everything but the vision tower; with `lora` nothing, and what is named is trained in full
    besides the adapter."""

    def __post_init__(self) -> None:
        super().__post_init__()
        new, tower, only = not self.model, self.vision, self.modules_to_train
        for key, fits, allowed in (
            ("vq", not new or not self.vq, "empty for a new network, which reads no image codes"),
            (
                "image_fit",
                bool(self.vq) or self.image_fit == "crop",
                "crop without objective.vq: a vision tower tiles images of any shape",
            ),
            (
                "vision",
                tower is None or (new and self.train_vision_tower),
                "null with a model to continue, and with train_vision_tower without: a new tower"
                " that is not trained stays random",
            ),
            ("modules_to_train", only is None or not new, "null for a new network"),
        ):
            check(fits, f"objective.{key}", getattr(self, key), allowed)
