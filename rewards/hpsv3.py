"""Human Preference Score v3 (Ma et al. 2025, arXiv:2508.03789), on transformers' Qwen2-VL.

    score = mean of the preference that a Qwen2-VL-7B states at its token <|Reward|>

The model reads the image and a question with the prompt (`mmrl.rewards.networks.hpsv3_question`)
and gives a mean and a deviation, of which the mean is the score. It is unbounded, about -5 to 15;
UniRL divides by 15, MaskGRPO by 5 (`scale` of the configuration entry). Every image is scaled to
about 200,704 pixels, with sides that are multiples of 28. We deviate from the published code in
that markers of special tokens in a prompt are broken: they would be read as images or second
scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from PIL import Image

from mmrl.config import check
from mmrl.rewards.networks.checkpoints import find_checkpoint, load_part, read_weights
from mmrl.rewards.networks.hpsv3_question import CHAT, IMAGE_TOKEN, QUESTION, REWARD_TOKEN
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.rewards.parsing.images import image_of
from mmrl.types import Sample

if TYPE_CHECKING:
    from torch import Tensor

FILE = "HPSv3.safetensors"
SIDE_FACTOR = 28
"""Pixels on a side of a token: patches of 14, merged two by two."""
PIXELS = 256 * SIDE_FACTOR**2


@dataclass(kw_only=True, eq=False)
class HPSv3Reward(NetworkOptions):
    """Human preference for an image given its prompt."""

    where: ClassVar[str] = "hpsv3"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    checkpoint: str = "MizzenAI/HPSv3"
    """Hub id or directory with `HPSv3.safetensors` (17 GB), or the file itself."""
    backbone: str = "Qwen/Qwen2-VL-7B-Instruct"
    """Hub id or directory with the configuration, tokenizer and image processor of the model that
    it was trained from; no weights are read from it."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Of the backbone's weights; the head is float32, as published."""
    batch_size: int = 8
    fill: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        import torch
        from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer

        from mmrl.rewards.networks.hpsv3_network import build_network

        key = "hpsv3.backbone"
        config = load_part(AutoConfig, self.backbone, key)
        allowed = f"a qwen2_vl, and not a {config.model_type}"
        check(config.model_type == "qwen2_vl", key, self.backbone, allowed)
        self.tokenizer = load_part(AutoTokenizer, self.backbone, key)
        self.images = load_part(AutoImageProcessor, self.backbone, key, backend="pil")
        self.tokenizer.add_tokens([REWARD_TOKEN], special_tokens=True)
        self.reward_id = self.tokenizer.convert_tokens_to_ids(REWARD_TOKEN)
        path = find_checkpoint(self.checkpoint, FILE, "hpsv3.checkpoint")
        weights = read_weights(path, "hpsv3.checkpoint", device=self.place)
        what = f"hpsv3.checkpoint {path}"
        network = build_network(weights, config, getattr(torch, self.dtype), what)
        rows = network.backbone.language_model.embed_tokens.num_embeddings
        allowed = f"the model that {what} was trained from, which has {rows} tokens"
        check(rows > self.reward_id, key, self.backbone, allowed)
        self.network = self.freeze(network)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores, unbounded."""
        shown = [(image_of(sample, self.where), sample.prompt) for sample in samples]
        return [score for part in self.split(shown) for score in self._score(part)]

    def _score(self, part: Sequence[tuple[Image.Image, str]]) -> list[float]:
        import torch

        filled = [*part, *[part[-1]] * (-len(part) % self.fill)]
        with torch.no_grad():
            scores = self.network(**self._inputs(filled), reward_id=self.reward_id)[:, 0]
        return scores[: len(part)].tolist()

    def _inputs(self, part: Sequence[tuple[Image.Image, str]]) -> dict[str, Tensor]:
        """What the network reads, on its device."""
        shown = [resize(image) for image, _ in part]
        found = self.images(images=shown, do_resize=False, return_tensors="pt")
        counts = (found["image_grid_thw"].prod(-1) // self.images.merge_size**2).tolist()
        texts = [_write_chat(prompt, n) for (_, prompt), n in zip(part, counts, strict=True)]
        words: Any = self.tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
        inputs = {key: words[key] for key in ("input_ids", "attention_mask")} | dict(found)
        return {key: value.to(self.place) for key, value in inputs.items()}


def _write_chat(prompt: str, image_tokens: int) -> str:
    plain = prompt.replace("<|", "< |").replace("|>", "| >")
    return CHAT.format(
        image=IMAGE_TOKEN * image_tokens, question=QUESTION.format(text_prompt=plain)
    )


def resize(image: Image.Image) -> Image.Image:
    """An image of about `PIXELS` pixels whose sides are multiples of `SIDE_FACTOR` (Qwen-VL's
    rule), bicubic."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    height, width = smart_resize(image.height, image.width, SIDE_FACTOR, PIXELS, PIXELS)
    return image.resize((width, height), Image.Resampling.BICUBIC)
