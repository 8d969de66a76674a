"""Image editing as canvases: a source image and an instruction in, the edited image out.

    pad* t2i soi code×n eoi bos instruction eos soi mask×n eoi

One row has three forms: whole, without the instruction (guidance by the text), and without the
source image, which is a row of `TextToImage`. The public MMaDA was not trained on the first two
(`models.layouts.mmada_rows`): a checkpoint learns them by `mmrl.sft` before it can edit.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from torch import Tensor

from mmrl.types import Canvas, Prompt
from models.layouts.image_marks import MARK, count_marks, without_images
from models.layouts.layout_config import ImageFit
from models.layouts.pixels import image_to_pixels
from models.layouts.question_layout import image_key
from models.layouts.text_to_image import TextToImage


@dataclass(frozen=True)
class ImageEdit(TextToImage):
    """Renders prompts with a source image; the edited image has the same grid.

    Args:
        image_fit: how the source image takes the sides of the edited one.
    """

    image_fit: ImageFit = "crop"

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError unless a prompt has exactly one image, and one mark or none."""
        check_source(prompt)

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Every prompt with a source image fits: longer instructions are truncated."""
        self.check(prompt)
        return True

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas:
        """B prompts -> canvas with n masked positions and its two unconditional twins.

        Each source image is opened and encoded once, however many rows show it.

        Raises:
            ValueError: a `length` other than n, or a prompt without a source image.
        """
        for prompt in prompts:
            self.check(prompt)
        masks = self._masks(len(prompts), length)
        texts = [without_images(prompt).text for prompt in prompts]
        sources, nothing = self._encode(prompts), [None] * len(prompts)
        return self._lay_out(
            self.rows.image_edit(texts, sources, masks),
            self.rows.image_edit(texts, sources, masks, [True] * len(prompts)),
            self.rows.image_edit(texts, nothing, masks),
        )

    def _encode(self, prompts: Sequence[Prompt]) -> list[Tensor]:
        """[n] int64 token ids of the source image of each prompt, each encoded alone."""
        known: dict[Hashable, Tensor] = {}
        keys = [image_key(prompt.images or (), 0) for prompt in prompts]
        device = next(self.vq.parameters()).device
        for key, prompt in zip(keys, prompts, strict=True):
            if key not in known and prompt.images is not None:
                height, width = (side * self.vq.downsample for side in self.grid)
                pixels = image_to_pixels(prompt.images[0], (height, width), self.image_fit)
                codes = self.vq.get_code(pixels[None].to(device))[0]
                known[key] = codes.cpu() + self.rows.code_offset
        return [known[key] for key in keys]


def check_source(prompt: Prompt) -> None:
    """Raise a ValueError unless an edit has exactly one source image, and one mark or none."""
    images, marks = len(prompt.images or ()), count_marks(prompt)
    if images != 1 or marks > 1:
        raise ValueError(
            f"prompt {prompt.id!r} has {images} images and {marks} marks {MARK}; an edit has"
            " exactly one source image. Give one, with one mark or none."
        )
