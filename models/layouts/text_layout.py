"""The text layout as canvases: prompts in, completions out.

    eos* prompt | mask×n          padded on the left, where nothing is attended to

The public samplers attend to the padding; here it is masked for every family, so a completion does
not depend on the other prompts of its batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.generation.causal.canvas import CausalCanvas
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models.layouts.chat_templates import render_chat
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.layout_config import MAX_COMPLETION_LENGTH, BlockAlignment
from mmrl.models.network.pattern import count_blocks
from mmrl.types import Prompt


@dataclass(frozen=True)
class TextLayout(Layout):
    """Renders prompts as canvases with every response position masked, and decodes finished ones.

    `ids` are of its special tokens: `mask`, `eos`, which pads as well, and `eot`, which ends a
    turn. `chat_template`: whether a prompt without messages becomes the message of a user; None
    does so where the tokenizer has a chat template. `block_size` is of a network whose attention is
    causal between blocks, else None; where they begin, see `LayoutConfig`. `cut`: whether a prompt
    that is too long loses its first tokens."""

    tokenizer: PreTrainedTokenizerBase
    ids: Mapping[str, int]
    max_prompt_length: int
    max_completion_length: int = MAX_COMPLETION_LENGTH
    chat_template: bool | str | None = None
    block_size: int | None = None
    block_alignment: BlockAlignment = "left"
    cut: bool = False

    def __post_init__(self) -> None:
        if self.chat_template and not self.tokenizer.chat_template:
            raise ValueError("chat_template is true and the tokenizer has none; set it to false")

    @property
    def vocab(self) -> tuple[int, int]:
        """Half-open range of text tokens; image codes and unused rows follow it."""
        return 0, len(self.tokenizer)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, the last ones where it is cut; see `_whole_ids`."""
        ids = self._whole_ids(prompt)
        return ids[-self.max_prompt_length :] if self.cut else ids

    def _whole_ids(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt: its messages, or its text, through the chat template if any; then
        its prefill. Raises ValueError: messages, and a tokenizer without a chat template."""
        chat, text = bool(self.tokenizer.chat_template), prompt.text
        messages = prompt.messages
        if messages is None and (chat if self.chat_template is None else self.chat_template):
            messages = [{"role": "user", "content": text}]
        if messages is not None and not chat:
            raise ValueError(f"prompt {prompt.id!r} has messages, the tokenizer no template")
        if messages is not None:
            text = render_chat(self.tokenizer, messages, prompt.place or prompt.id)
        return list(self.tokenizer(text + prompt.prefill, add_special_tokens=False)["input_ids"])

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Whether a prompt is within `max_prompt_length`, however long the response."""
        return len(self.prompt_ids(prompt)) <= self.max_prompt_length

    def cuts(self, prompt: Prompt) -> bool:
        """Whether a prompt loses tokens."""
        return self.cut and len(self._whole_ids(prompt)) > self.max_prompt_length

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> MaskedCanvas:
        """B prompts -> canvas with `length` masked positions, None for `max_completion_length`; its
        unconditional branch has mask tokens in place of the prompt. Raises ValueError: a prompt
        longer than the limit, or a length below 1."""
        rows = [self.prompt_ids(prompt) for prompt in prompts]
        for prompt, row in zip(prompts, rows, strict=True):
            if len(row) > self.max_prompt_length:
                raise ValueError(
                    f"prompt {prompt.id!r} has {len(row)} tokens; max_prompt_length is"
                    f" {self.max_prompt_length}. Raise it, or leave the prompt out."
                )
        return self.lay_out(rows, self.max_completion_length if length is None else length)

    def lay_out(self, rows: Sequence[list[int]], n: int) -> MaskedCanvas:
        """Token ids of B prompts -> canvas with n masked positions after each. Raises ValueError: n
        is below 1."""
        mask, size = self.ids["mask"], self.block_size
        tokens, attend, response = self._pad(rows, mask, n)
        if self.block_size and self.block_alignment == "right" and n % self.block_size:
            raise ValueError(
                f"max_completion_length is {n}, no multiple of the network's block size"
                f" {self.block_size}; choose one that is, or block_alignment: left"
            )
        keep = None if bool(attend.all()) else attend
        first = 0 if self.block_alignment == "left" else tokens.shape[1] - n
        blocks = None if size is None else count_blocks(attend, size, first)
        return MaskedCanvas(
            tokens,
            response,
            keep,
            self.vocab,
            mask,
            uncond_tokens=torch.full_like(tokens, mask),
            uncond_attend=keep,
            stop_ids=self.stop_ids,
            blocks=blocks,
            block_size=size,
        )

    def _pad(self, rows: Sequence[list[int]], filler: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Ids [B, L] of prompts with n fillers behind each; which of them are attended to, and
        which are of the response."""
        if n < 1:
            raise ValueError(f"max_completion_length is {n}; it must be at least 1")
        tokens, mask = pad_rows([row + [filler] * n for row in rows], self.ids["eos"])
        columns = torch.arange(tokens.shape[1]).expand_as(tokens)
        return tokens, mask.bool(), columns >= tokens.shape[1] - n

    def decode(self, canvas: MaskedCanvas) -> list[str]:
        """Finished canvas -> B texts, cut at the first end, without special tokens. Raises
        ValueError: a response position is unwritten."""
        if bool(canvas.masked.any()):
            raise ValueError("the canvas holds unwritten positions; is it finished?")
        rows = canvas.tokens[canvas.response].view(len(canvas), -1)
        return [self._text(row) for row in rows]

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The tokens that end a text; the first pads it."""
        return self.ids["eos"], self.ids["eot"]

    def _text(self, row: Tensor) -> str:
        ids = row.tolist()
        end = min((ids.index(token) for token in self.stop_ids if token in ids), default=len(ids))
        return str(self.tokenizer.decode(ids[:end], skip_special_tokens=True))


@dataclass(frozen=True)
class CausalText(TextLayout):
    """Prompts, padded on the left, and behind them the columns of the responses. Beside the
    arguments of `TextLayout` there are `ends`, further ids that end a text, and `banned`, ids that
    no response has."""

    ends: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((self.ids["eos"], *self.ends)))

    def lay_out(self, rows: Sequence[list[int]], n: int) -> CausalCanvas:  # type: ignore[override]
        """Token ids of B prompts -> canvas with n response positions after each. Raises ValueError:
        n is below 1, or an empty prompt."""
        if not all(rows):
            raise ValueError("a prompt has no token that could predict the first of its text")
        tokens, attend, response = self._pad(rows, self.ids["eos"], n)
        keep = None if bool(attend.all()) else attend
        canvas = CausalCanvas(tokens, response, keep, self.vocab, stop_ids=self.stop_ids)
        return replace(canvas, banned=self.banned)

    def decode(self, canvas: CausalCanvas) -> list[str]:  # type: ignore[override]
        rows = canvas.tokens[canvas.response].view(len(canvas), -1)
        return [self._text(row) for row in rows]


def pad_rows(
    rows: Sequence[list[int]], pad: int, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """Token ids [B, L] of rows, padded on the left to the longest or to `width`, and a mask that is
    0 on padding."""
    missing = [(width or max(map(len, rows))) - len(row) for row in rows]
    pairs = list(zip(rows, missing, strict=True))
    ids = torch.tensor([[pad] * n + row for row, n in pairs])
    return ids, torch.tensor([[0] * n + [1] * len(row) for row, n in pairs])
