"""CLIP reward: cosine between image and prompt (Radford et al. 2021, arXiv:2103.00020).

    score = <f(image), g(prompt)>,   both of length one

The score is the raw cosine, about 0.15 to 0.35 for OpenAI's ViT-L/14. Other conventions are a
`scale` of the configuration entry: 2.5 for CLIPScore (Hessel et al. 2021, who also clip at 0),
100 / 30 for logits / 30. The prompt is used without a template and truncated at the context length.

With `image: prompt` the image is that of the prompt and the text is the completion: the reward of
captions in dLLM-RL (`model: ViT-L-14-336`, `scale: 100`). A caption of more than 77 tokens is
truncated, and its end token stays.
"""

from dataclasses import dataclass
from typing import Literal

from PIL import Image

from mmrl.rewards.networks.dual_encoder import ReadsTarget
from mmrl.rewards.networks.open_clip_encoder import OpenCLIPReward
from mmrl.rewards.parsing.images import as_rgb
from mmrl.types import Sample


@dataclass(kw_only=True, eq=False)
class CLIPReward(ReadsTarget, OpenCLIPReward):
    """Cosine of any open_clip model."""

    where = "clip"

    image: Literal["completion", "prompt"] = "completion"
    """Whose image is scored: the completion's with the words of the prompt, or the prompt's with
    the words of the completion (a caption). The latter leaves out prompts without an image, and
    those with an answer whose metadata `is_caption` is not true."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image == "prompt":
            self.needs = ("completion",)  # type: ignore[misc]  # what a server demands of samples

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Cosines in [-1, 1]; with `image: prompt` None for what is no caption."""
        if self.image == "completion":
            return super().__call__(samples)
        places = [n for n, sample in enumerate(samples) if _is_caption(sample)]
        # the rollouts of a prompt share its images, which are alive as long as the batch
        shared = {id(samples[n].images): _only_image(samples[n]) for n in places}
        scores: list[float | None] = [None] * len(samples)
        if places:
            images = self.encoder.encode_images([as_rgb(image) for image in shared.values()])
            rows = dict(zip(shared, images, strict=True))
            texts = self.encoder.encode_texts([_caption(samples[n]) for n in places])
            for n, text in zip(places, texts, strict=True):
                scores[n] = (rows[id(samples[n].images)] * text).sum().item()
        return scores


def _is_caption(sample: Sample) -> bool:
    given = sample.metadata.get("is_caption")
    wanted = sample.metadata.get("answer") is None if given is None else given is True
    return bool(sample.images) and wanted


def _only_image(sample: Sample) -> Image.Image:
    images = sample.images or []
    if len(images) != 1:
        raise ValueError(
            f"The clip reward scores a caption of one image, and the prompt {sample.prompt[:80]!r}"
            f" has {len(images)}."
        )
    return images[0]


def _caption(sample: Sample) -> str:
    if not isinstance(sample.completion, str):
        raise ValueError(
            "clip.image is prompt, so the clip reward reads a text, and the completion of"
            f" {sample.prompt[:80]!r} is an image; set clip.image to completion."
        )
    return sample.completion
