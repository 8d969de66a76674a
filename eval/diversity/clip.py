"""Spread of images in the features of a CLIP.

    d(a, b) = 1 - <f(a), f(b)>,   both of length one

The mean over pairs is one minus the mean pairwise cosine: 0 for equal images, about 0.1 to 0.4 for
photographs of one prompt. The network is a further one, beside those of the rewards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mmrl.evaluation.diversity.metric import Completions
from mmrl.rewards.networks.dual_encoder import DualEncoder
from mmrl.rewards.networks.open_clip_encoder import load_encoder
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.rewards.parsing.images import as_rgb


@dataclass(kw_only=True, eq=False)
class CLIPDiversity(NetworkOptions):
    """Spread in the features of any open_clip model."""

    name: ClassVar[str] = "clip"
    reads: ClassVar = "images"
    values: ClassVar = ("clip",)
    labels: ClassVar = {}

    model: str = "ViT-L-14"
    """Built-in architecture, directory with `open_clip_config.json` and weights, or
    `hf-hub:owner/name`."""
    pretrained: str | None = None
    """Tag or checkpoint file of a built-in architecture; null takes `openai`."""
    encoder: DualEncoder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encoder = load_encoder("clip.", self.model, self.pretrained, self)

    def describe(self, completions: Completions) -> Sequence[Any]:
        """Features [D] of each image."""
        images: Any = completions.completions
        return list(self.encoder.encode_images([as_rgb(i) for i in images])) if images else []

    def compare(self, one: Any, other: Any) -> Sequence[float]:
        """From 0 to 2."""
        return [1 - float(one @ other)]

    def label(self, one: Any) -> Sequence[str]:
        """None."""
        return ()
