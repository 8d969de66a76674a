"""Lumina-DiMOO's rows: the order of text, image codes and marks (arXiv 2510.06308).

    prompt   <system> S </system> <user> U </user>       S says the task
    null     the same with the token <uncondition> for U
    image    boi (w codes, newline)×h eoi
    t2i      prompt | answer image /answer
    edit     prompt, the source images before its last token | answer image /answer
    mmu      prompt, the images before its last token, answer | mask×n /answer

Rows are padded on the left. The public code samples one row at a time, and pads training rows on
the right, where the network attends to the padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.models.layouts.text_layout import pad_rows

DRAW = "Generate an image according to the text prompt."
EDIT = "Generate an image applying the following editing instruction based on the original image."
ANSWER = (
    "You are a multimodal model that can process both text and images. Answer the following"
    " question based on the provided images. Analyze each image and combine relevant details to"
    " answer."
)
"""What the public code says before a prompt, S of each task."""
UNCONDITIONAL = "<uncondition>"


@dataclass(frozen=True)
class LuminaRows:
    """The rows of one checkpoint: `ids` of its special tokens (`boi`, `eoi`, `newline`, `answer`,
    `end_answer`, `mask`) and of image code 0; prompts have at most `max_text_len` tokens without
    images, longer ones lose the end of U; images that are written have `grid` (height, width)
    codes."""

    tokenizer: PreTrainedTokenizerBase
    ids: Mapping[str, int]
    code_offset: int
    max_text_len: int
    grid: tuple[int, int]

    def text_to_image(
        self,
        texts: Sequence[str],
        codes: Tensor,
        drop: Sequence[bool] | None = None,
        sources: Sequence[Sequence[Tensor]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Image generation, `t2i`; see `mmrl.models.layouts.text_to_image.ImageRows`. With the
        source images of each text, token ids [h, w], `edit`; none for a row without."""
        system, rows = DRAW if sources is None else EDIT, []
        given = zip(self._prompts(texts, system, drop), sources or [()] * len(texts), strict=True)
        for prompt, images in given:
            shown = [self.show(own.flatten(), (len(own), own.shape[1])).tolist() for own in images]
            rows.append([*prompt[:-1], *sum(shown, []), prompt[-1], self.ids["answer"]])
        text, mask = pad_rows(rows, self.ids["end_answer"], max(map(len, rows)))
        end = codes.new_full((len(codes), 1), self.ids["end_answer"])
        image = torch.cat((self.show(codes, self.grid), end), 1)
        return torch.cat((text, image), 1), torch.cat((mask, torch.ones_like(image)), 1)

    def written(self, grid: tuple[int, int]) -> Tensor:
        """[h * (w + 1) + 3] bool: the codes, and not the ends of rows and the marks around."""
        codes = torch.full((grid[0] * grid[1],), self.code_offset)
        return torch.cat((self.show(codes, grid), codes[:1] + 1)) == self.code_offset

    def prompt(self, user: str, system: str) -> list[int]:
        """Token ids of a prompt, of any length; `</user>` is the last."""
        text = f"<system>{system}</system><user>{user}</user>"
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def show(self, codes: Tensor, grid: tuple[int, int]) -> Tensor:
        """An image between its marks: row-major ids [..., h * w] -> [..., h * (w + 1) + 2]."""
        rows = codes.unflatten(-1, grid)
        ends = rows.new_full((*rows.shape[:-1], 1), self.ids["newline"])
        lines = torch.cat((rows, ends), -1).flatten(-2)
        begin, end = (lines.new_full((*lines.shape[:-1], 1), self.ids[k]) for k in ("boi", "eoi"))
        return torch.cat((begin, lines, end), -1)

    def _prompts(
        self, texts: Sequence[str], system: str, drop: Sequence[bool] | None
    ) -> list[list[int]]:
        """The prompts of texts, or of rows whose text is dropped."""
        null, dropped = self.prompt(UNCONDITIONAL, system), drop or [False] * len(texts)
        limit = self.max_text_len
        rows = [self.prompt(text, system) for text in texts]
        rows = [row if len(row) <= limit else [*row[: limit - 1], row[-1]] for row in rows]
        return [null if bare else row for row, bare in zip(rows, dropped, strict=True)]
