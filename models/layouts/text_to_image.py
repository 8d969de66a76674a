"""Image generation and image editing as canvases: prompts in, images out."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from PIL import Image
from torch import Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.image_marks import check_one_image, without_images
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.layout_config import ImageFit, MaskPolicy
from mmrl.models.layouts.lumina_rows import LuminaRows
from mmrl.models.layouts.mmada_rows import MmadaRows
from mmrl.models.layouts.pixels import encode_image
from mmrl.models.layouts.question_layout import image_key
from mmrl.types import Prompt


class ImageRows(Protocol):
    """How a family orders text and the codes of images that are written, as token ids with a mask
    that is 0 on padding, which is on the left.

    `ids`: special tokens by role, `mask` among them; `code_offset`: id of image code 0.
    """

    @property
    def ids(self) -> Mapping[str, int]: ...

    @property
    def code_offset(self) -> int: ...

    def text_to_image(
        self, texts: Sequence[str], codes: Tensor, drop: Sequence[bool] | None = None
    ) -> tuple[Tensor, Tensor]:
        """B texts, dropped for the unconditional prompt, and token ids [B, n] of images -> rows."""
        ...

    def written(self, grid: tuple[int, int]) -> Tensor:
        """[m] bool: which of the last m positions of every row hold a code of the image."""
        ...


@dataclass(frozen=True)
class TextToImage(Layout):
    """Renders prompts as canvases with every image position masked, and decodes finished ones;
    `grid` is height and width of the image in codes."""

    needs_vq: ClassVar[bool] = True

    rows: ImageRows
    vq: ImageTokenizer
    grid: tuple[int, int]
    mask_policy: MaskPolicy

    @property
    def ids(self) -> Mapping[str, int]:  # type: ignore[override]
        return self.rows.ids

    @property
    def vocab(self) -> tuple[int, int]:
        """Half-open range of the image-code token ids."""
        offset = self.rows.code_offset
        return offset, offset + self.vq.codebook_size

    def cuts(self, prompt: Prompt) -> bool:
        """Whether the row leaves out the end of a prompt: it is the same without a letter of it."""
        whole, shorter = prompt.text.rstrip(), prompt.text.rstrip()[:-1]
        masks = self._masks(1, None)
        return torch.equal(*(self.rows.text_to_image([t], masks)[0] for t in (whole, shorter)))

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> MaskedCanvas:
        """B prompts -> canvas with n masked positions and its unconditional branch. Raises
        ValueError: a `length` other than n."""
        given = [prompt.text for prompt in prompts], self._masks(len(prompts), length)
        branch = self.rows.text_to_image(*given, [True] * len(prompts))
        return self._lay_out(self.rows.text_to_image(*given), branch)

    def decode(self, canvas: MaskedCanvas) -> list[Image.Image]:
        """Finished canvas -> B images. Raises ValueError: a response position is unwritten or holds
        no image code."""
        codes = canvas.tokens[canvas.response].view(len(canvas), -1) - self.rows.code_offset
        device = next(self.vq.parameters()).device
        return open_images(self.vq.decode_bytes(codes.to(device), shape=canvas.grid))

    def _masks(self, rows: int, length: int | None) -> Tensor:
        """[rows, n] mask tokens; a ValueError for a `length` other than n."""
        n = self.grid[0] * self.grid[1]
        if length not in (None, n):
            raise ValueError(f"max_completion_length is {length}; an image has {n}, leave it null")
        return torch.full((rows, n), self.rows.ids["mask"])

    def _lay_out(
        self,
        row: tuple[Tensor, Tensor],
        branch: tuple[Tensor, Tensor],
        image_branch: tuple[Tensor, Tensor] | None = None,
    ) -> MaskedCanvas:
        """The canvas of rows and their unconditional branches, each ids [B, L] and mask, aligned
        at the right."""
        given = {"": row, "uncond_": branch, "image_uncond_": image_branch}
        all_rows = {name: each for name, each in given.items() if each is not None}
        width = max(ids.shape[1] for ids, _ in all_rows.values())
        all_rows = {name: pad_left(*each, width) for name, each in all_rows.items()}
        written, first, attend = self.rows.written(self.grid), 0, {}
        if self.mask_policy == "key_padding":  # cut the columns that no row attends to
            used = torch.stack([mask.bool() for _, mask in all_rows.values()]).any(0)
            first = int(used.any(0).int().argmax())
            attend = {f"{k}attend": mask[:, first:].bool() for k, (_, mask) in all_rows.items()}
        tokens = {f"{k}tokens": ids[:, first:] for k, (ids, _) in all_rows.items()}
        response = torch.zeros_like(tokens["tokens"], dtype=torch.bool)
        response[:, -len(written) :] = written
        known = {"columns": self.vocab, "mask_id": self.rows.ids["mask"], "grid": self.grid}
        return MaskedCanvas(**{"attend": None, **attend}, **tokens, **known, response=response)


@dataclass(frozen=True)
class ImageEdit(TextToImage):
    """Image editing: a source image, which takes the grid of the edited one by `image_fit`, and an
    instruction in, the edited image out.

    One row has three forms: whole, without the instruction (guidance by the text), and without the
    source image, which is a row of `TextToImage`. The public MMaDA was not trained on the first two
    (`mmrl.models.layouts.mmada_rows`): a checkpoint learns them by `mmrl.sft` before it can edit.
    """

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


def pad_left(ids: Tensor, mask: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Rows [B, L] with columns of padding before them, which repeat the first token."""
    missing = width - ids.shape[1]
    before = ids[:, :1].expand(-1, missing), mask.new_zeros(len(mask), missing)
    return torch.cat((before[0], ids), 1), torch.cat((before[1], mask), 1)


def open_images(pixels: Tensor) -> list[Image.Image]:
    """Pixels [B, 3, H, W] uint8 -> RGB images."""
    return [Image.fromarray(image.permute(1, 2, 0).cpu().numpy()) for image in pixels]
