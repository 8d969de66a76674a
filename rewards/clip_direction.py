"""CLIP directional similarity of an edit (Gal et al. 2022, StyleGAN-NADA, arXiv:2108.00946).

    score = cos(f(image) - f(source image), g(text) - g(source text)),   f and g of length one

How far the image changed in the direction in which its description changed. The source image is
the first of the prompt's images, the source text the metadata `source_text`; the text is the
metadata `target_text`, and the prompt without it (for instructions such as "make it winter" give
both: "a street", "a street in winter"). As in InstructPix2Pix (arXiv:2211.09800) differences are of
normalised features. The score is raw: about 0 to 0.3 for edits, and exactly 0 for an image that
was not changed, which has no direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mmrl.config import check
from mmrl.rewards.networks.open_clip_encoder import OpenCLIPReward
from mmrl.rewards.parsing.images import as_rgb, image_of
from mmrl.types import Sample

if TYPE_CHECKING:
    pass


class CLIPDirectionReward(OpenCLIPReward):
    """Agreement of a change of the image with the change of its description."""

    name = "clip_direction"
    needs = ("prompt", "images", "metadata")

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where the texts are no texts, or the same."""
        if metadata.get("source_text") is not None:
            _texts(metadata, str(metadata.get("target_text") or ""))

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Cosines in [-1, 1]; None for a sample without source image or source text."""
        from torch.nn import functional as F

        images = [image_of(sample, "clip_direction") for sample in samples]
        places = [n for n, sample in enumerate(samples) if _has_source(sample)]
        if not places:
            return [None] * len(samples)
        # the rollouts of a prompt share its images, which are alive as long as the batch
        shared = {id(samples[n].images): samples[n].images or [] for n in places}
        sources = self.encoder.encode_images([as_rgb(images[0]) for images in shared.values()])
        before = dict(zip(shared, sources, strict=True))
        texts = [_texts(samples[n].metadata, samples[n].prompt) for n in places]
        after_edit = self.encoder.encode_images([images[n] for n in places])
        words = list(dict.fromkeys(text for pair in texts for text in pair))
        encoded = dict(zip(words, self.encoder.encode_texts(words), strict=True))
        scores: list[float | None] = [None] * len(samples)
        for row, n in enumerate(places):
            moved = after_edit[row] - before[id(samples[n].images)]
            source, target = (encoded[text] for text in texts[row])
            scores[n] = F.cosine_similarity(moved, target - source, dim=0).item()
        return scores


def _has_source(sample: Sample) -> bool:
    return bool(sample.images) and sample.metadata.get("source_text") is not None


def _texts(metadata: Mapping[str, Any], prompt: str) -> tuple[str, str]:
    """Source and target text."""
    source, target = metadata["source_text"], metadata.get("target_text") or prompt
    for key, text in (("source_text", source), ("target_text", target)):
        check(isinstance(text, str), f"metadata.{key}", text, "a text")
    advice, allowed = "Describe the finished image in target_text.", "another text than the target"
    check(source != target, "metadata.source_text", source, allowed, advice)
    return source, target
