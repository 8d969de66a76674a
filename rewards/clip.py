"""CLIP reward: cosine between image and prompt (Radford et al. 2021, arXiv:2103.00020).

    score = <f(image), g(prompt)>,   both of length one

The score is the raw cosine, about 0.15 to 0.35 for OpenAI's ViT-L/14. Other conventions are a
`scale` of the configuration entry: CLIPScore has 2.5 (Hessel et al. 2021, who also clip at 0),
logits / 30 are 100 / 30. The prompt goes in as it is, without a template, and is cut at the context
length.
"""

from typing import ClassVar, Literal

from mmrl.types import Sample
from rewards.networks.open_clip_encoder import open_clip_encoder
from rewards.parsing.images import image_of


class CLIPReward:
    """Cosine of any open_clip model.

    Args:
        model: built-in architecture, directory with `open_clip_config.json` and weights, or
            `hf-hub:owner/name`.
        pretrained: tag or checkpoint file of a built-in architecture; None takes `openai`.
        device: "auto", or a torch device.
        dtype: precision of the towers; normalisation and dot product are float32.
        batch_size: images encoded at once.
        fill: see `DualEncoder`.

    Raises:
        FileNotFoundError, ValueError: model or weights that do not exist or cannot be read;
            NotHereError where they are to come from the hub.
    """

    scale: ClassVar[str] = "cosine, -1 to 1"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    def __init__(
        self,
        model: str = "ViT-L-14",
        pretrained: str | None = None,
        device: str = "auto",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        batch_size: int = 32,
        fill: int = 8,
    ) -> None:
        self.encoder = open_clip_encoder(
            "clip.", model, pretrained, device=device, dtype=dtype, batch_size=batch_size, fill=fill
        )

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Cosines in [-1, 1].

        Raises:
            ValueError: a completion is not an image.
        """
        images = [image_of(sample, "clip") for sample in samples]
        return list(self.encoder.cosine(images, [sample.prompt for sample in samples]))
