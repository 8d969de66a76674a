"""MMaDA's rows: the order of task token, text, image codes and padding.

Every method turns texts and codes into ids [B, L] int64 and a mask of the same shape. M is the
longest text: an image-generation row has M + 1 ids of text, an understanding row M.

    t2i  pad* t2i bos text eos | soi code×n eoi          padded on the left
    lm   bos text eos eos*                               padded on the right
    mmu  mmu soi code×n eoi | bos text eos eos*          padded on the right
    edit pad* t2i soi code×n eoi bos text eos | soi code×n eoi     padded on the left

The public checkpoints were not trained on `edit`, which MMaDA has no row for: it is a t2i row with
the source image where an mmu row has it, before the text, so a row without source is a t2i row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.models.layouts.text_layout import pad_rows


@dataclass(frozen=True)
class MmadaRows:
    """The rows of one checkpoint: `ids` of its special tokens (`soi`, `eoi`, `t2i`, `mmu`, `pad`,
    `bos`, `eos`, `mask`, `end_header`), and `max_text_len`, which is M."""

    tokenizer: PreTrainedTokenizerBase
    ids: Mapping[str, int]
    max_text_len: int

    @property
    def code_offset(self) -> int:
        """Id of image code 0: the length of the tokenizer, not the padded vocabulary size."""
        return len(self.tokenizer)

    def text_to_image(
        self,
        texts: Sequence[str],
        codes: Tensor,
        drop: Sequence[bool] | None = None,
        sources: Sequence[Sequence[Tensor]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Image generation, `t2i`: ids [B, M + n + 3] of texts and of codes [B, n], which are token
        ids or masks; rows of `drop` lose their text for classifier-free guidance. With the source
        images of each text, token ids [h, w], `edit`: ids [B, M + 2 n + 5], wider with several;
        none for a row without."""
        rows, width = [], self.max_text_len + 1
        given = zip(self._prompts(texts, drop), sources or [()] * len(texts), strict=True)
        for row, images in given:
            shown = [self._frame(image.flatten()).tolist() for image in images]
            rows.append([*row[:1], *sum(shown, []), *row[1:]])
        if sources is not None:
            width += max(1, *map(len, sources)) * (codes.shape[1] + 2)
        before, mask = pad_rows(rows, self.ids["pad"], width)
        image = self._frame(codes)
        return torch.cat((before, image), 1), torch.cat((mask, torch.ones_like(image)), 1)

    def written(self, grid: tuple[int, int]) -> Tensor:
        """[n + 1] bool: the codes, and not the end of the image."""
        return torch.arange(grid[0] * grid[1] + 1) < grid[0] * grid[1]

    def _prompts(self, texts: Sequence[str], drop: Sequence[bool] | None) -> list[list[int]]:
        """`t2i bos text eos` of each row, without the text of those that drop it."""
        bare, longest = [self.ids[key] for key in ("t2i", "bos", "eos")], self.max_text_len + 1
        rows = zip(texts, drop or [False] * len(texts), strict=True)
        return [bare if dropped else self._text(text, longest, "t2i") for text, dropped in rows]

    def language(self, texts: Sequence[str], length: int) -> tuple[Tensor, Tensor]:
        """Plain text, `lm`: ids [B, length] and a mask of ones. A cut text has no final eos."""
        ids = self._pad([self._text(text)[:length] for text in texts], length)
        return ids, torch.ones_like(ids)

    def image_to_text(self, texts: Sequence[str], codes: Tensor) -> tuple[Tensor, Tensor]:
        """Image understanding, `mmu`: ids [B, n + 3 + M] and the prompt mask: 1 for the image and
        the text up to and including its last end-of-header token."""
        text = self._pad([self._text(text, self.max_text_len) for text in texts], self.max_text_len)
        header = (text == self.ids["end_header"]).int()
        asked = (header.flip(1).cumsum(1).flip(1) > 0).long()
        image = self.show(codes)
        return torch.cat((image, text), 1), torch.cat((torch.ones_like(image), asked), 1)

    def show(self, codes: Tensor, grid: tuple[int, int] | None = None) -> Tensor:
        """What shows an image before a question, `mmu soi code×n eoi`: [..., n] -> [..., n + 3]."""
        return torch.cat((self._column("mmu", codes), self._frame(codes)), -1)

    def _frame(self, codes: Tensor) -> Tensor:
        return torch.cat((self._column("soi", codes), codes, self._column("eoi", codes)), -1)

    def _column(self, key: str, codes: Tensor) -> Tensor:
        return codes.new_full((*codes.shape[:-1], 1), self.ids[key])

    def _text(self, text: str, length: int | None = None, head: str | None = None) -> list[int]:
        """`head bos text eos`, cut to `length` ids with a final eos."""
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        if ids[:1] != [self.ids["bos"]]:
            ids = [self.ids["bos"], *ids]
        row = [self.ids[head], *ids] if head else ids
        return [*row[: None if length is None else length - 1], self.ids["eos"]]

    def _pad(self, rows: Sequence[list[int]], length: int) -> Tensor:
        return torch.tensor([row + [self.ids["eos"]] * (length - len(row)) for row in rows])
