"""Latents that are written from a source image and a text: edits, and videos that begin with it."""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.models.layouts.image_marks import check_one_image, without_images
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.pixels import fit_image, image_to_pixels
from mmrl.models.layouts.question_layout import image_key
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.layouts.text_to_video import TextToVideo
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

    def encode(self, text: str, prompt: Prompt | None = None) -> dict[str, Tensor]:
        assert prompt is not None and prompt.images, "a text is encoded beside an image"
        shape, network = self.shape_of(prompt), self.network
        size = shape[-2] * self.pixels, shape[-1] * self.pixels
        image = fit_image(prompt.images[0], size, self.image_fit)
        names, encode = [str(self.max_length)], self.encode_text
        pixels = image_to_pixels(image, size)
        digest = hashlib.sha256(pixels.numpy().tobytes()).hexdigest()
        if self.shows_image:
            encode = partial(encode, image=image)
            names.append(digest)
        found = self.parts.encode(text, encode, *names)
        key = type(network).__name__, digest, str(shape)
        compute = partial(self._encode_source, pixels, shape)
        return {**found, **self.parts.recall([VAE], key, compute)}

    def _encode_source(self, pixels: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
        return {"source": self.network.encode_source(pixels, shape)}


@dataclass(frozen=True)
class ImageToVideo(EditedLatents, TextToVideo):
    """The same of videos whose first frame is the image."""
