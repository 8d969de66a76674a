"""Image editing as canvases: a source image and an instruction in, the edited image out.

    pad* t2i soi code×n eoi bos instruction eos soi mask×n eoi

One row has three forms: whole, without the instruction (guidance by the text), and without the
source image, which is a row of `TextToImage`. The public MMaDA was not trained on the first two
(`mmrl.models.layouts.mmada_rows`): a checkpoint learns them by `mmrl.sft` before it can edit.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from torch import Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models.layouts.image_marks import check_one_image, without_images
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.lumina_rows import LuminaRows
from mmrl.models.layouts.mmada_rows import MmadaRows
from mmrl.models.layouts.pixels import encode_image
from mmrl.models.layouts.question_layout import image_key
from mmrl.models.layouts.text_to_image import TextToImage
from mmrl.types import Prompt


@dataclass(frozen=True)
class ImageEdit(TextToImage):
    """Renders prompts with a source image, which takes the grid of the edited one by
    `image_fit`."""

    check = staticmethod(check_one_image)

    rows: LuminaRows | MmadaRows
    image_fit: ImageFit = "crop"

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> MaskedCanvas:
        """B prompts -> canvas with n masked positions and its two unconditional branches; each
        source image is opened and encoded once. Raises ValueError: a `length` other than n, or a
        prompt without a source image."""
        for prompt in prompts:
            self.check(prompt)
        masks = self._masks(len(prompts), length)
        texts = [without_images(prompt).text for prompt in prompts]
        sources, rows = self._encode(prompts), self.rows.text_to_image
        return self._lay_out(
            rows(texts, masks, None, sources),
            rows(texts, masks, [True] * len(prompts), sources),
            rows(texts, masks, None, [()] * len(prompts)),
        )

    def _encode(self, prompts: Sequence[Prompt]) -> list[list[Tensor]]:
        """Token ids [h, w] int64 of the source images of each prompt, each encoded alone."""
        known: dict[Hashable, Tensor] = {}
        for prompt in prompts:
            if (key := image_key(prompt.images or (), 0)) not in known:
                codes = encode_image(self.vq, (prompt.images or [])[0], self.grid, self.image_fit)
                known[key] = codes.view(self.grid) + self.rows.code_offset
        return [[known[image_key(prompt.images or (), 0)]] for prompt in prompts]
