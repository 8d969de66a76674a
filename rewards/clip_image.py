"""CLIP similarity of an edited image to its source (Brooks et al. 2023, arXiv:2211.09800).

    score = <f(image), f(source image)>,   both of length one

How much of the source an edit keeps: InstructPix2Pix's image consistency. The source is the first
of the prompt's images. The score is the raw cosine, about 0.6 to 1 for edits of photos, and 1 for
an image that was not changed: use it beside a reward that asks for the change, such as
`clip_direction` or a judge.
"""

from typing import ClassVar

from mmrl.rewards.networks.open_clip_encoder import OpenCLIPReward
from mmrl.rewards.parsing.images import as_rgb, image_of
from mmrl.types import Sample


class CLIPImageReward(OpenCLIPReward):
    """Agreement of an edited image with its source."""

    name: ClassVar[str] = "clip_image"
    needs: ClassVar[tuple[str, ...]] = ("images",)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Cosines in [-1, 1]; None for a sample without a source image."""
        images = [image_of(sample, "clip_image") for sample in samples]
        places = [n for n, sample in enumerate(samples) if sample.images]
        scores: list[float | None] = [None] * len(samples)
        if not places:
            return scores
        # the rollouts of a prompt share its images, which are alive as long as the batch
        shared = {id(samples[n].images): samples[n].images or [] for n in places}
        sources = self.encoder.encode_images([as_rgb(own[0]) for own in shared.values()])
        before = dict(zip(shared, sources, strict=True))
        edited = self.encoder.encode_images([images[n] for n in places])
        for row, n in zip(edited, places, strict=True):
            scores[n] = (before[id(samples[n].images)] * row).sum().item()
        return scores
