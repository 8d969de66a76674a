"""Cosine similarity of an image tower and a text tower, the core of every CLIP-like reward.

Towers may run under autocast; the normalisation and the dot product are always float32, because
half precision has steps of about 2.4e-4 between 0.25 and 0.5, which is as large as the differences
inside a group of rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from PIL import Image

from mmrl.config import check
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.rewards.parsing.images import image_of
from mmrl.types import Sample

if TYPE_CHECKING:
    from torch import Tensor


class DualEncoder:
    """The two towers of a network, with its tokenizer, which maps texts to token ids [b, T] int64,
    its transform, which maps an RGB PIL image to a float32 tensor [3, H, W], and `prepare`, which
    maps pixels [3, H, W] in [0, 1] to the same with their gradient. The network is one of
    open_clip, with `encode_image([b, 3, H, W])` and `encode_text([b, T])`, or a CLIPModel of
    transformers; `options` say device, precision and batches."""

    def __init__(
        self,
        network: Any,
        tokenizer: Callable[[list[str]], Tensor],
        transform: Callable[[Image.Image], Tensor],
        prepare: Callable[[Tensor], Tensor],
        options: NetworkOptions,
    ) -> None:
        self.network, self.options = options.freeze(network), options
        self.tokenizer, self.transform, self.prepare = tokenizer, transform, prepare

    def encode_pixels(self, pixels: Sequence[Tensor]) -> Tensor:
        """[n, D] float32 rows of length one of pixels [3, H, W] in [0, 1], with their gradient, on
        the device of the network."""
        import torch
        from torch.nn import functional as F

        inputs = torch.stack([self.prepare(each.to(self.options.place)) for each in pixels])
        with self.options.autocast():
            features = self._encode_pixels(inputs)
        return F.normalize(features.float(), dim=-1)

    def encode_images(self, images: Sequence[Image.Image]) -> Tensor:
        """[n, D] float32 rows of length one, on the CPU."""
        import torch

        def collate(part: Sequence[Image.Image]) -> Tensor:
            return torch.stack([self.transform(image) for image in part])

        return self._encode(images, collate, self._encode_pixels)

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """[n, D] float32 rows of length one, on the CPU."""
        return self._encode(texts, lambda part: self.tokenizer(list(part)), self._encode_tokens)

    def _encode_pixels(self, pixels: Tensor) -> Tensor:
        if hasattr(self.network, "encode_image"):
            return self.network.encode_image(pixels)
        pooled = self.network.vision_model(pixel_values=pixels).pooler_output
        return self.network.visual_projection(pooled)

    def _encode_tokens(self, tokens: Tensor) -> Tensor:
        if hasattr(self.network, "encode_text"):
            return self.network.encode_text(tokens)
        # Attention is causal and the features are those of the end token: padding plays no part.
        pooled = self.network.text_model(input_ids=tokens).pooler_output
        return self.network.text_projection(pooled)

    def _encode(
        self, items: Sequence[Any], collate: Callable[[Any], Tensor], tower: Callable[[Any], Tensor]
    ) -> Tensor:
        import torch
        from torch.nn import functional as F

        rows = []
        for part in self.options.split(items):
            with torch.no_grad():
                inputs = self.options.fill_up(collate(part))
                with self.options.autocast():
                    features = tower(inputs)
                rows.append(F.normalize(features.float(), dim=-1)[: len(part)].cpu())
        return torch.cat(rows)


@dataclass(kw_only=True, eq=False)
class EncoderReward(NetworkOptions):
    """A reward that compares images and prompts with the towers of an encoder, which
    `__post_init__` sets; `factor` is that of the cosine in the score."""

    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    encoder: DualEncoder = field(init=False, repr=False)
    factor: float = field(default=1.0, init=False)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Cosines in [-1, 1], times `factor`."""
        if not samples:
            return []
        images = self.encoder.encode_images([image_of(sample, self.where) for sample in samples])
        cosines = (images * self._encode_words(samples)).sum(-1).tolist()
        return [self.factor * cosine for cosine in cosines]

    def score_pixels(self, pixels: Sequence[Tensor], samples: list[Sample]) -> Tensor:
        """See `mmrl.rewards.registry.interface.Differentiable`."""
        found = self.encoder.encode_pixels(pixels)
        return self.factor * (found * self._encode_words(samples).to(found.device)).sum(-1)

    def _encode_words(self, samples: Sequence[Sample]) -> Tensor:
        """[n, D]; a text is encoded once however often it occurs (the rollouts of a group share
        their prompt)."""
        texts = [self.words(sample) for sample in samples]
        unique = list(dict.fromkeys(texts))
        row_of = {text: row for row, text in enumerate(unique)}
        return self.encoder.encode_texts(unique)[[row_of[text] for text in texts]]

    def words(self, sample: Sample) -> str:
        """The text that an image is compared with."""
        return sample.prompt


@dataclass(kw_only=True, eq=False)
class ReadsTarget:
    """What a reward with the words of an edit's target has beside those of `EncoderReward`."""

    text: Literal["prompt", "target_text"] = "prompt"
    """What an image is compared with: the words of the prompt, or for edits, whose prompt is an
    instruction, the metadata `target_text` where a row has it."""

    def words(self, sample: Sample) -> str:
        """See `EncoderReward.words`. Raises ConfigError: `target_text` is no text."""
        target = sample.metadata.get("target_text") if self.text == "target_text" else None
        words = target or sample.prompt
        check(isinstance(words, str), "metadata.target_text", words, "a text")
        return words
