"""LAION's aesthetic score (Schuhmann et al. 2022, improved-aesthetic-predictor).

    score = MLP(f(image)),   f of length one, by OpenAI's CLIP ViT-L/14

The layers are those of `rewards.networks.score_layers`, 768 to 1024 to 128 to 64 to 16 to 1; the
image is prepared as for CLIP. The score is raw: about 1 to 10, photographs 5 to 6.5. It knows
nothing of the prompt, so it must never be the only reward of a run.
"""

from typing import ClassVar, Literal

from PIL import Image

from mmrl.types import Sample
from rewards.networks.checkpoints import fill_network, find_checkpoint, read_weights
from rewards.networks.open_clip_encoder import open_clip_encoder
from rewards.networks.score_layers import score_layers
from rewards.parsing.images import image_of

FILE = "aesthetic-model.pth"
"""Name of sac+logos+ava1-l14-linearMSE.pth at the hub id that is the default."""


class AestheticReward:
    """How good an image looks, whatever it shows.

    Args:
        checkpoint: hub id or directory holding `aesthetic-model.pth`, or the file of the layers,
            such as sac+logos+ava1-l14-linearMSE.pth.
        model: the CLIP whose image features the layers read, see `CLIPReward`.
        pretrained: its weights, see `CLIPReward`; None takes `openai`.
        device: "auto", or a torch device.
        dtype: precision of the image tower; normalisation and layers are float32.
        batch_size: images encoded at once.
        fill: see `DualEncoder`.

    Raises:
        FileNotFoundError, ValueError: model or checkpoint do not exist, cannot be read or do not
            belong together; NotHereError where they are to come from the hub.
    """

    scale: ClassVar[str] = "about 1 to 10"
    needs: ClassVar[tuple[str, ...]] = ("images",)

    def __init__(
        self,
        checkpoint: str = "trl-lib/ddpo-aesthetic-predictor",
        model: str = "ViT-L-14",
        pretrained: str | None = None,
        device: str = "auto",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        batch_size: int = 32,
        fill: int = 8,
    ) -> None:
        from torch import nn

        path = find_checkpoint(checkpoint, FILE, "aesthetic.checkpoint")
        weights = read_weights(path, "aesthetic.checkpoint")
        self.encoder = open_clip_encoder(
            "aesthetic.",
            model,
            pretrained,
            device=device,
            dtype=dtype,
            batch_size=batch_size,
            fill=fill,
        )
        features = self.encoder.encode_images([Image.new("RGB", (64, 64))])
        self.layers = score_layers(features.shape[1])
        what = f"aesthetic.checkpoint {path} does not fit the features of aesthetic.model"
        fill_network(nn.ModuleDict({"layers": self.layers}), weights, what)
        self.layers.eval().requires_grad_(False)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Raw scores, about 1 to 10.

        Raises:
            ValueError: a completion is not an image.
        """
        import torch

        images = [image_of(sample, "aesthetic") for sample in samples]
        # Row by row: a matrix product may round differently for another number of rows.
        rows = self.encoder.encode_images(images).split(1) if images else ()
        with torch.no_grad():
            return [self.layers(row).item() for row in rows]
