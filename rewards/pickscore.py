"""PickScore (Kirstain et al. 2023, Pick-a-Pic, arXiv:2305.01569), on transformers' CLIP.

    score = exp(logit_scale) * <f(image), g(prompt)>,   both of length one

A CLIP ViT-H/14 that was trained further on choices of people. The score is raw, about 18 to 24;
flow_grpo and UniRL divide by 26 (`scale: 0.0385` in the configuration entry), the cosine is the
score over exp(logit_scale), about 1/100. The image is prepared by the checkpoint's own processor:
shortest side to 224 (bicubic), centre crop, OpenAI's mean and deviation. The prompt goes in as it
is and is cut at 77 tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from PIL import Image

from mmrl.types import Sample
from rewards.networks.dual_encoder import DualEncoder
from rewards.networks.pretrained import load_network, load_part
from rewards.parsing.images import image_of

if TYPE_CHECKING:
    from torch import Tensor

CONTEXT = 77


class PickScoreReward:
    """Human preference for an image given its prompt.

    Args:
        model: hub id or directory of a CLIPModel of transformers.
        processor: hub id or directory of its tokenizer and image processor; the checkpoint was
            published without.
        device: "auto", or a torch device.
        dtype: precision of the towers; normalisation and dot product are float32.
        batch_size: images encoded at once.
        fill: see `DualEncoder`.

    Raises:
        ValueError: model or processor that are not there, incomplete, or of another kind;
            NotHereError where they are to come from the hub.
    """

    scale: ClassVar[str] = "logits, about 18 to 24"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    def __init__(
        self,
        model: str = "yuvalkirstain/PickScore_v1",
        processor: str = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        device: str = "auto",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        batch_size: int = 16,
        fill: int = 8,
    ) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

        from rewards.networks.pickscore_network import Towers

        # Resized as published, on the PIL image.
        image_processor = load_part(
            AutoImageProcessor, processor, "pickscore.processor", backend="pil"
        )
        tokenizer = load_part(AutoTokenizer, processor, "pickscore.processor")
        network = load_network(CLIPModel, model, "pickscore.model")
        self.factor = network.logit_scale.exp().item()

        def tokens(texts: list[str]) -> Tensor:
            rows = tokenizer(
                texts,
                padding="max_length",
                truncation=True,
                max_length=CONTEXT,
                return_tensors="pt",
            )
            return rows["input_ids"]

        def pixels(image: Image.Image) -> Tensor:
            return image_processor(image, return_tensors="pt")["pixel_values"][0]

        self.encoder = DualEncoder(Towers(network), tokens, pixels, device, dtype, batch_size, fill)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scaled cosines.

        Raises:
            ValueError: a completion is not an image.
        """
        images = [image_of(sample, "pickscore") for sample in samples]
        cosines = self.encoder.cosine(images, [sample.prompt for sample in samples])
        return [self.factor * cosine for cosine in cosines]
