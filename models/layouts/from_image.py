"""Latents that are written from a source image and a text: edits, and videos that begin with it."""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from PIL import Image
from torch import Tensor

from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.models.layouts.image_marks import check_one_image, without_images
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.pixels import fit_image, image_to_pixels
from mmrl.models.layouts.question_layout import image_key
from mmrl.models.layouts.text_to_latents import TextToLatents, TextToVideo
from mmrl.models.network.pipeline_parts import VAE
from mmrl.types import Prompt


@dataclass(frozen=True)
class EditedLatents(TextToLatents):
    """Encodes prompts with one image each, which takes the size of the one that is written; the
    empty text of guidance comes with the image as well.

    Attributes:
        image_fit: how the image takes that size.
        shows_image: whether the encoders of texts read the image, too.
    """

    check = staticmethod(check_one_image)

    image_fit: ImageFit = "crop"
    shows_image: bool = False

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> LatentCanvas:
        """See `TextToLatents.canvas`; each source image is opened and encoded once. Raises
        ValueError: also a prompt without a source image."""
        for prompt in prompts:
            self.check(prompt)
        own = [replace(prompt, text=without_images(prompt).text) for prompt in prompts]
        return super().canvas(own, length)

    def key(self, text: str, prompt: Prompt) -> Hashable:
        return text, image_key(prompt.images or (), 0), self.shape_of(prompt)

    def encode_all(self, pairs: Sequence[tuple[str, Prompt]]) -> list[dict[str, Tensor]]:
        """See `TextToLatents.encode_all`; texts of one prompt share its image."""
        sources = {self.key("", prompt): prompt for _, prompt in pairs}
        known = {key: self._encode_source(prompt) for key, prompt in sources.items()}
        return [self._encode_beside(text, *known[self.key("", prompt)]) for text, prompt in pairs]

    def _encode_source(self, prompt: Prompt) -> tuple[Image.Image, str, dict[str, Tensor]]:
        """The fitted image of a prompt, the digest of its pixels and its latent."""
        shape, network = self.shape_of(prompt), self.network
        size = shape[-2] * self.pixels, shape[-1] * self.pixels
        image = fit_image((prompt.images or [])[0], size, self.image_fit)
        pixels = image_to_pixels(image, size)
        digest = hashlib.sha256(pixels.numpy().tobytes()).hexdigest()
        key = type(network).__name__, digest, str(shape)
        compute = lambda: {"source": network.encode_source(pixels, shape)}  # noqa: E731
        return image, digest, self.parts.recall([VAE], key, compute)

    def _encode_beside(
        self, text: str, image: Image.Image, digest: str, source: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        if not self.shows_image:
            return {**self.encode(text), **source}
        encode = partial(self.encode_text, image=image)
        return {**self.parts.encode(text, encode, str(self.max_length), digest), **source}


@dataclass(frozen=True)
class ImageToVideo(EditedLatents, TextToVideo):
    """The same of videos whose first frame is the image."""
