"""aMUSEd's rows: CLIP's ids of the text, then codes (`mmrl.models.network.uvit`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class ClipRows:
    """The rows of one checkpoint.

    Args:
        ids: of `mask`.
        text_length: ids of a text, to which it is padded or cut.
        text_offset: id of token 0 of the text, behind those of codes.
    """

    tokenizer: PreTrainedTokenizerBase
    ids: Mapping[str, int]
    text_length: int
    text_offset: int
    code_offset: int = 0

    def text_to_image(
        self, texts: Sequence[str], codes: Tensor, drop: Sequence[bool] | None = None
    ) -> tuple[Tensor, Tensor]:
        """See `ImageRows.text_to_image`; the unconditional prompt is the empty text."""
        dropped = [False] * len(texts) if drop is None else drop
        given = self.tokenizer(
            ["" if out else text for text, out in zip(texts, dropped, strict=True)],
            padding="max_length",
            truncation=True,
            max_length=self.text_length,
        )
        rows = torch.cat((torch.tensor(given["input_ids"]) + self.text_offset, codes), 1)
        return rows, torch.ones_like(rows)

    def written(self, grid: tuple[int, int]) -> Tensor:
        """See `ImageRows.written`."""
        return torch.ones(grid[0] * grid[1], dtype=torch.bool)
