"""Images and videos as latents, written from a text, or from an image and a text."""

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmrl.generation.flow.canvas import LatentCanvas, stack_padded
from mmrl.models.layouts.image_marks import check_one_image, without_images
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.pixels import clip_to_pixels, fit_image, image_to_pixels
from mmrl.models.layouts.question_layout import image_key
from mmrl.models.network.pipeline_parts import VAE, Encode, PipelineParts, Scale
from mmrl.models.network.velocity_network import VelocityNetwork
from mmrl.types import Completion, Prompt, Video


@dataclass(frozen=True)
class TextToLatents(Layout):
    """Encodes prompts, and decodes finished latents.

    Attributes:
        network: has the parts of the pipeline, once its weights are read.
        encode_text: how the family encodes a text.
        rule: the schedule of the checkpoint.
        channels: of a latent.
        pixels: of an image for each latent, along a side.
        size: height and width of an image in pixels, where its prompt does not give its own under
            `height` and `width` of its metadata.
        max_length: longest prompt in tokens; longer ones are cut.
        unloads: whether the text encoders are freed once all prompts of a run are encoded.
        frames: of what is written.
    """

    network: VelocityNetwork
    encode_text: Encode
    rule: Any
    channels: int
    pixels: int
    size: tuple[int, int]
    max_length: int
    unloads: bool = False
    frames: int = 1
    ids: Mapping[str, int] = field(default_factory=dict)

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Every prompt fits: longer ones are cut, as in the public pipelines. Raises ValueError: a
        size of the prompt's own that is no image's."""
        self.shape_of(prompt)
        return True

    @property
    def parts(self) -> PipelineParts:
        """Of the pipeline."""
        assert self.network.parts is not None, "the weights of the checkpoint are not read"
        return self.network.parts

    def shape_of(self, prompt: Prompt) -> tuple[int, ...]:
        """Channels, height and width of the latent of a prompt. Raises ValueError: its image is no
        whole number of tokens."""
        sides = [
            prompt.metadata.get(k, d) for k, d in zip(("height", "width"), self.size, strict=True)
        ]
        token = self.pixels * self.network.patch
        for side in sides:
            if not isinstance(side, int) or side < token or side % token:
                raise ValueError(
                    f"{prompt.place or prompt.id}: an image has sides {sides}; they must be"
                    f" multiples of {token}, the side of a token in pixels"
                )
        return self.channels, sides[0] // self.pixels, sides[1] // self.pixels

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> LatentCanvas:
        """B prompts -> latents to be written, each distinct text encoded once. Raises ValueError: a
        `length` other than that of an image in tokens."""
        shapes = [self.shape_of(prompt) for prompt in prompts]
        if length not in {None, *map(self.network.count_tokens, shapes)}:
            raise ValueError(f"max_completion_length is {length}; leave it null for images")
        branches = [(text, prompt) for text in (None, "") for prompt in prompts]
        pairs = [(prompt.text if text is None else text, prompt) for text, prompt in branches]
        keys = [self.key(*pair) for pair in pairs]
        distinct = dict(zip(keys, pairs, strict=True))
        encoded = self.encode_all([*distinct.values()])
        number = {key: n for n, key in enumerate(distinct)}
        text, empty = torch.tensor([number[key] for key in keys]).chunk(2)
        return LatentCanvas(
            shapes=shapes,
            texts={key: stack_padded([each[key] for each in encoded]) for key in encoded[0]},
            text=text,
            empty=empty,
            rule=self.rule,
            names=[prompt.text for prompt in prompts],
        )

    def fit_pixels(self, frames: Sequence[Image.Image]) -> Tensor:
        """Frames, the first ones of which are read -> [3, H, W] of an image in [-1, 1]."""
        return clip_to_pixels(frames, self.frames, self.size)[:, 0]

    def key(self, text: str, prompt: Prompt) -> Hashable:
        """What the encoding of a text of a prompt, its own or the empty one, depends on."""
        return text

    def encode_all(self, pairs: Sequence[tuple[str, Prompt]]) -> list[dict[str, Tensor]]:
        """What the network is conditioned on by texts of prompts, see `encode`."""
        return [self.encode(text) for text, _ in pairs]

    def encode(self, text: str) -> dict[str, Tensor]:
        """What the network is conditioned on by a text: [1, …] by keyword, on the CPU."""
        return self.parts.encode(text, self.encode_text, str(self.max_length))

    def decode(self, canvas: LatentCanvas) -> Sequence[Completion]:
        """Finished latents -> B images."""
        return self._decode(canvas, self.parts.decode)

    def render(self, canvas: LatentCanvas) -> list[Tensor]:
        """Finished latents -> B images as pixels, see `Policy.render`."""
        return self._decode(canvas, self.parts.render)

    def _decode(
        self, canvas: LatentCanvas, decode: Callable[[Tensor, Scale], list[Any]]
    ) -> list[Any]:
        """What `decode` makes of latents of one shape, row by row."""
        images: list[Any] = [None] * len(canvas)
        for shape, rows, part in canvas.by_shape():
            number = torch.Size(shape).numel()
            latents = part.finished[:, :number].unflatten(1, shape)
            found = decode(latents, self.network.to_decoder)
            places = range(len(canvas)) if isinstance(rows, slice) else rows.tolist()
            for row, image in zip(places, found, strict=True):
                images[row] = image
        return images


@dataclass(frozen=True)
class TextToVideo(TextToLatents):
    """Encodes prompts, and decodes finished latents to frames.

    Attributes:
        frames: of a video, where its prompt does not give its own under `num_frames` of its
            metadata.
        stride: frames for each latent one after the first.
        fps: of the videos.
    """

    frames: int = 81
    stride: int = 4
    fps: float = 16.0

    def shape_of(self, prompt: Prompt) -> tuple[int, ...]:
        """Channels, frames, height and width of the latent of a prompt. Raises ValueError: its
        frames are no whole number of tokens, or not one more than a multiple of `stride`."""
        channels, *sides = super().shape_of(prompt)
        number = prompt.metadata.get("num_frames", self.frames)
        if not isinstance(number, int) or number < 1 or (number - 1) % self.stride:
            raise ValueError(
                f"{prompt.place or prompt.id}: num_frames is {number!r}; it must be 1 more than a"
                f" multiple of {self.stride}, such as {5 * self.stride + 1}"
            )
        return channels, (number - 1) // self.stride + 1, *sides

    def fit_pixels(self, frames: Sequence[Image.Image]) -> Tensor:
        """[3, T, H, W], see `clip_to_pixels`."""
        return clip_to_pixels(frames, self.frames, self.size)

    def decode(self, canvas: LatentCanvas) -> list[Video]:
        """Finished latents -> B videos."""
        return [Video(each, self.fps) for each in self._decode(canvas, self.parts.decode_frames)]

    def render(self, canvas: LatentCanvas) -> list[Tensor]:
        """Finished latents -> B videos as pixels [T, 3, H, W], see `Policy.render`."""
        return [each.transpose(0, 1) for each in self._decode(canvas, self.parts.render)]


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
