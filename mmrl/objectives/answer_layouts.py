"""Layouts of a policy for completions of text and answers about images, and images as codes."""

from collections.abc import Sequence
from functools import cached_property

import torch
from PIL import Image
from torch import Tensor

from mmrl.data.images import LazyImage, LazyImages
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.image_codes_chat import CodesAlbum, ImageCodesChat
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.models.layouts.question_layout import Album, QuestionLayout
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.policy import Policy


class ImageCodes:
    """Codes of images, each of which is opened, made a square of `size` pixels and encoded once,
    for its first micro-batch, `at_once` together, on the device of the image tokenizer."""

    def __init__(self, vq: ImageTokenizer, size: int, fit: ImageFit, at_once: int) -> None:
        self.vq, self.size, self.at_once = vq, size, at_once
        self.fit: ImageFit = fit
        self.known: dict[bytes, Tensor] = {}

    def encode(self, images: Sequence[LazyImage]) -> Tensor:
        """Codes [len(images), N] int64 of images, on the CPU. Raises ConfigError: an image that
        cannot be read, see `LazyImage.open`; it names the row."""
        keys, device = [image.digest for image in images], next(self.vq.parameters()).device
        new = {k: i for k, i in zip(keys, images, strict=True) if k not in self.known}
        for first in range(0, len(new), self.at_once):
            part = list(new)[first : first + self.at_once]
            squares = [image_to_pixels(new[key].open(), self.size, self.fit) for key in part]
            codes = self.vq.get_code(torch.stack(squares).to(device)).to("cpu", torch.int32)
            self.known |= dict(zip(part, codes, strict=True))
        return torch.stack([self.known[key] for key in keys]).long()


class AnswerLayouts:
    """Layouts of a policy, which needs no weights, for completions of text and for answers about
    images, `at_once` of which are encoded together where the network reads codes."""

    def __init__(self, policy: Policy, at_once: int) -> None:
        text, questions = policy.layouts["text"], policy.layouts.get("image_to_text")
        assert isinstance(text, TextLayout)
        assert questions is None or isinstance(questions, QuestionLayout)
        self.text, self.image_to_text, self.at_once = text, questions, at_once

    @cached_property
    def codes(self) -> ImageCodes | None:
        """Codes of the images seen so far; None for a network that reads none."""
        layout = self.image_to_text
        if not isinstance(layout, ImageCodesChat):
            return None
        size = layout.grid[0] * layout.vq.downsample
        return ImageCodes(layout.vq, size, layout.image_fit, self.at_once)

    def album(self, prompts: Sequence[Sequence[Image.Image]]) -> Album | None:
        """The album for the images of the prompts of a micro-batch, which images that become codes
        are in already; None for a network that reads no images."""
        layout = self.image_to_text
        album = None if layout is None else layout.album()
        shown = [images for images in prompts if isinstance(images, LazyImages)]
        if shown and isinstance(album, CodesAlbum) and self.codes is not None:
            codes = self.codes.encode([image for each in shown for image in each.sources])
            places = [(each, n) for each in shown for n in range(len(each))]
            for (images, number), row in zip(places, codes, strict=True):
                album.put(images, number, row)
        return album
