"""MMaDA's prompt layouts: where task token, text, image codes and padding stand in a row.

Every layout turns texts and codes into ids [B, L] int64 and a mask of the same shape. M is the
longest text: an image-generation row has M + 1 ids of text, an understanding row M.

    t2i  pad* t2i bos text eos | soi code×n eoi          padded on the left
    lm   bos text eos eos*                               padded on the right
    mmu  mmu soi code×n eoi | bos text eos eos*          padded on the right
    r2i  r2i bos text eos eos* | soi code×n eoi          padded between text and image
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

_RESERVED = {"soi": 0, "eoi": 1, "t2i": 4, "mmu": 5, "pad": 9, "r2i": 10}
"""MMaDA reuses LLaDA's reserved tokens `<|reserved_token_i|>`, so no embedding row is added."""


def token_ids(tokenizer: PreTrainedTokenizerBase, names: Mapping[str, str]) -> dict[str, int]:
    """Ids of tokens by their names, under the same keys.

    Raises:
        ValueError: the tokenizer lacks one.
    """
    vocabulary = tokenizer.get_vocab()
    absent = sorted(set(names.values()) - vocabulary.keys())
    if absent:
        raise ValueError(f"the tokenizer lacks LLaDA's special tokens {', '.join(absent)}")
    return {key: vocabulary[name] for key, name in names.items()}


@dataclass(frozen=True)
class MmadaRows:
    """The layouts of one checkpoint.

    Args:
        tokenizer: LLaDA's, or one with the same special tokens.
        max_text_len: M.
    """

    tokenizer: PreTrainedTokenizerBase
    max_text_len: int

    @cached_property
    def ids(self) -> dict[str, int]:
        """Ids of the structural tokens, looked up by their LLaDA names."""
        names = {key: f"<|reserved_token_{i}|>" for key, i in _RESERVED.items()}
        names |= {"bos": "<|startoftext|>", "eos": "<|endoftext|>", "mask": "<|mdm_mask|>"}
        names |= {"end_header": "<|end_header_id|>", "eot": "<|eot_id|>"}
        return token_ids(self.tokenizer, names)

    @property
    def code_offset(self) -> int:
        """Id of image code 0: the length of the tokenizer, not the padded vocabulary size."""
        return len(self.tokenizer)

    def text_to_image(
        self, texts: Sequence[str], codes: Tensor, drop: Sequence[bool] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Image generation, `t2i_gen` (codes are masks) and `t2i` (training).

        Args:
            texts: B prompts.
            codes: [B, n] token ids of the image positions (offset added, or the mask id).
            drop: rows whose text is dropped, for classifier-free guidance.

        Returns:
            ids [B, M + n + 3] and mask, 0 on the left padding.
        """
        rows = [self._text(text, self.max_text_len + 1, "t2i") for text in texts]
        if drop is not None:
            bare = [self.ids[key] for key in ("t2i", "bos", "eos")]
            rows = [bare if dropped else row for row, dropped in zip(rows, drop, strict=True)]
        width = self.max_text_len + 1
        text = torch.tensor([[self.ids["pad"]] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        image = self._framed(codes)
        return torch.cat((text, image), 1), torch.cat((mask, torch.ones_like(image)), 1)

    def language(self, texts: Sequence[str], length: int) -> tuple[Tensor, Tensor]:
        """Plain text, `lm`: ids [B, length] and a mask of ones. A cut text has no final eos."""
        rows = [(self._text(text)[:length]) for text in texts]
        ids = torch.tensor([row + [self.ids["eos"]] * (length - len(row)) for row in rows])
        return ids, torch.ones_like(ids)

    def chat(self, texts: Sequence[str], length: int) -> tuple[Tensor, Tensor]:
        """Chat text, `lm_chat`: ids [B, length] and the prompt mask (1 through the last header)."""
        ids = torch.tensor([self._padded(text, length) for text in texts])
        return ids, self._prompt_mask(ids)

    def image_to_text(self, texts: Sequence[str], codes: Tensor) -> tuple[Tensor, Tensor]:
        """Image understanding, `mmu`: ids [B, n + 3 + M] and the prompt mask (image included)."""
        text = torch.tensor([self._padded(text, self.max_text_len) for text in texts])
        image = self.shown(codes)
        mask = torch.cat((torch.ones_like(image), self._prompt_mask(text)), 1)
        return torch.cat((image, text), 1), mask

    def shown(self, codes: Tensor) -> Tensor:
        """What shows an image before a question, `mmu soi code×n eoi`: ids [B, n + 3]."""
        head = codes.new_full((len(codes), 1), self.ids["mmu"])
        return torch.cat((head, self._framed(codes)), 1)

    def reasoning_to_image(self, texts: Sequence[str], codes: Tensor) -> tuple[Tensor, Tensor]:
        """Reasoning, then an image, `r2i`: ids [B, 1 + M + n + 2] and the prompt mask (float).

        A text without a header is prompt throughout.
        """
        text = torch.tensor([self._padded(text, self.max_text_len) for text in texts])
        head = torch.full((len(texts), 1), self.ids["r2i"])
        frame = torch.ones_like(self._framed(codes))
        frame[:, 1:-1] = 0
        prompt = self._prompt_mask(text)
        prompt[prompt.sum(1) == 0] = 1
        mask = torch.cat((torch.ones_like(head), prompt, frame), 1)
        return torch.cat((head, text, self._framed(codes)), 1), mask.float()

    def _framed(self, codes: Tensor) -> Tensor:
        edges = codes.new_tensor([self.ids["soi"], self.ids["eoi"]]).expand(codes.shape[0], 2)
        return torch.cat((edges[:, :1], codes, edges[:, 1:]), 1)

    def _text(self, text: str, length: int | None = None, head: str | None = None) -> list[int]:
        """`head bos text eos`, cut to `length` ids with a final eos."""
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        if ids[:1] != [self.ids["bos"]]:
            ids = [self.ids["bos"], *ids]
        row = [self.ids[head], *ids] if head else ids
        return [*row[: None if length is None else length - 1], self.ids["eos"]]

    def _padded(self, text: str, length: int) -> list[int]:
        row = self._text(text, length)
        return row + [self.ids["eos"]] * (length - len(row))

    def _prompt_mask(self, ids: Tensor) -> Tensor:
        """1 up to and including the last end-of-header token of each row, 0 after."""
        header = (ids == self.ids["end_header"]).int()
        return (header.flip(1).cumsum(1).flip(1) > 0).long()
