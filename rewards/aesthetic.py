"""LAION's aesthetic score (Schuhmann et al. 2022, improved-aesthetic-predictor).

    score = MLP(f(image)),   f of length one, by OpenAI's CLIP ViT-L/14

The layers are those of ImageReward (`build_score_layers`), 768 to 1024 to 128 to 64 to 16 to 1;
the image is prepared as for CLIP. The score is raw: about 1 to 10, photographs 5 to 6.5. It knows
nothing of the prompt, so it must never be the only reward of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from PIL import Image

from mmrl.rewards.networks.checkpoints import fill_network, find_checkpoint, read_weights
from mmrl.rewards.networks.open_clip_encoder import OpenCLIPReward
from mmrl.rewards.parsing.images import image_of
from mmrl.types import Sample

if TYPE_CHECKING:
    from torch import Tensor

FILE = "aesthetic-model.pth"
"""Name of sac+logos+ava1-l14-linearMSE.pth at the hub id that is the default."""


@dataclass(kw_only=True, eq=False)
class AestheticReward(OpenCLIPReward):
    """How good an image looks, whatever it shows; `model` is the CLIP whose features are read."""

    where: ClassVar[str] = "aesthetic"
    needs: ClassVar[tuple[str, ...]] = ("images",)

    checkpoint: str = "trl-lib/ddpo-aesthetic-predictor"
    """Hub id or directory with `aesthetic-model.pth`, or the file of the layers, such as
    sac+logos+ava1-l14-linearMSE.pth."""

    def __post_init__(self) -> None:
        from torch import nn

        from mmrl.rewards.networks.imagereward_network import build_score_layers

        path = find_checkpoint(self.checkpoint, FILE, "aesthetic.checkpoint")
        weights = read_weights(path, "aesthetic.checkpoint")
        super().__post_init__()
        features = self.encoder.encode_images([Image.new("RGB", (64, 64))])
        self.layers = build_score_layers(features.shape[1])
        what = f"aesthetic.checkpoint {path} does not fit the features of aesthetic.model"
        fill_network(nn.ModuleDict({"layers": self.layers}), weights, what)
        self.layers.eval().requires_grad_(False)

    def score_pixels(self, pixels: Sequence[Tensor], samples: list[Sample]) -> Tensor:
        """See `mmrl.rewards.registry.interface.Differentiable`."""
        features = self.encoder.encode_pixels(pixels)
        return self.layers.to(features.device)(features)[:, 0]

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Raw scores, about 1 to 10."""
        import torch

        images = [image_of(sample, "aesthetic") for sample in samples]
        # Row by row: a matrix product may round differently for another number of rows.
        rows = self.encoder.encode_images(images).split(1) if images else ()
        with torch.no_grad():
            return [self.layers(row).item() for row in rows]
