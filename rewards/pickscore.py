"""PickScore (Kirstain et al. 2023, Pick-a-Pic, arXiv:2305.01569), on transformers' CLIP.

    score = exp(logit_scale) * <f(image), g(prompt)>,   both of length one

A CLIP ViT-H/14 that was trained further on choices of people. The score is raw, about 18 to 24;
flow_grpo and UniRL divide by 26 (`scale: 0.0385` in the configuration entry), the cosine is the
score over exp(logit_scale), about 1/100. The image is prepared by the checkpoint's own processor:
shortest side to 224 (bicubic), centre crop, OpenAI's mean and deviation. The prompt goes in as it
is and is cut at 77 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from PIL import Image

from mmrl.config import import_extra
from mmrl.rewards.networks.checkpoints import load_network, load_part
from mmrl.rewards.networks.dual_encoder import DualEncoder, EncoderReward

if TYPE_CHECKING:
    from torch import Tensor

CONTEXT = 77


@dataclass(kw_only=True, eq=False)
class PickScoreReward(EncoderReward):
    """Human preference for an image given its prompt."""

    where: ClassVar[str] = "pickscore"

    model: str = "yuvalkirstain/PickScore_v1"
    """Hub id or directory of a CLIPModel of transformers."""
    processor: str = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"
    """Hub id or directory of its tokenizer and image processor, which the checkpoint lacks."""
    batch_size: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

        key = "pickscore.processor"
        # Resized as published, on the PIL image.
        image_processor = load_part(AutoImageProcessor, self.processor, key, backend="pil")
        tokenizer = load_part(AutoTokenizer, self.processor, key)
        network = load_network(CLIPModel, self.model, "pickscore.model")
        self.factor = network.logit_scale.exp().item()
        padding = {"padding": "max_length", "truncation": True, "max_length": CONTEXT}

        def tokenize(texts: list[str]) -> Tensor:
            return tokenizer(texts, **padding, return_tensors="pt")["input_ids"]

        def transform(image: Image.Image) -> Tensor:
            return image_processor(image, return_tensors="pt")["pixel_values"][0]

        def prepare(pixels: Tensor) -> Tensor:
            known, steps = image_processor, import_extra("torchvision.transforms", "clip")
            side, crop = known.size["shortest_edge"], known.crop_size
            pixels = steps.Resize(side, steps.InterpolationMode.BICUBIC)(pixels)
            top, left = (
                (a - crop[k]) // 2
                for a, k in zip(pixels.shape[1:], ("height", "width"), strict=True)
            )
            pixels = pixels[:, top : top + crop["height"], left : left + crop["width"]]
            return steps.Normalize(known.image_mean, known.image_std)(pixels)

        self.encoder = DualEncoder(network, tokenize, transform, prepare, self)
