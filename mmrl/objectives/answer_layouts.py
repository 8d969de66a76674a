"""Layouts of a policy for completions of text and for answers about images."""

from collections.abc import Sequence
from functools import cached_property

from PIL import Image

from mmrl.data.lazy_images import LazyImages
from mmrl.models.layouts.image_codes_chat import CodesAlbum, ImageCodesChat
from mmrl.models.layouts.question_layout import Album, QuestionLayout
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.policy import Policy
from mmrl.objectives.data_config import ImageCodesConfig
from mmrl.objectives.image_codes import ImageCodes


class AnswerLayouts:
    """Layouts of a policy for completions of text and for answers about images.

    Args:
        policy: its weights are not needed.
        config: how images become codes, for a network that reads those.
    """

    def __init__(self, policy: Policy, config: ImageCodesConfig) -> None:
        text, questions = policy.layouts["text"], policy.layouts.get("image_to_text")
        assert isinstance(text, TextLayout)
        assert questions is None or isinstance(questions, QuestionLayout)
        self.text, self.image_to_text, self.config = text, questions, config

    @cached_property
    def codes(self) -> ImageCodes | None:
        """Codes of the images seen so far; None for a network that reads none."""
        layout = self.image_to_text
        if not isinstance(layout, ImageCodesChat):
            return None
        size = layout.grid[0] * layout.vq.downsample
        return ImageCodes(layout.vq, size, layout.image_fit, self.config)

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
