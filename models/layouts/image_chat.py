"""Questions about images as canvases, for networks that see embeddings (LLaDA-V).

    eos* conversation with an image's embeddings in place of every `<image>` | mask×n

The conversation is the prompt through the chat template, after LLaDA-V's system message; padding is
masked as in `TextLayout`. As in the public code, the text between images is tokenised piece by
piece, and pieces after an image lose their first token, the newline after `<image>`, where the
first piece begins with the token that begins a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from PIL import Image
from torch import Tensor

from mmrl.generation.tokens.features import Features, PromptImage
from mmrl.models.layouts.anyres import Tiling
from mmrl.models.layouts.image_marks import MARK, check_images, join_parts, render
from mmrl.models.layouts.question_layout import Album, QuestionLayout, Row
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.types import Prompt

SYSTEM = (
    "You are a helpful language and vision assistant. You are able to understand the visual"
    " content that the user provides, and assist the user with a variety of tasks using natural"
    " language."
)


@dataclass(frozen=True)
class ImageChat(QuestionLayout):
    """Renders prompts with images as embeddings; `ids` has `bos`, `header` and `end_header` of
    turns besides those of text. As in the public sampler a response ends with the end of a turn,
    and no other structural token is written."""

    needs_tower: ClassVar[bool] = True
    check = staticmethod(check_images)

    text: TextLayout
    ids: Mapping[str, int]
    tiling: Tiling
    max_length: int | None = None

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return (self.ids["eot"],)

    @property
    def banned(self) -> tuple[int, ...]:
        return tuple(self.ids[key] for key in ("eos", "bos", "header", "end_header"))

    def __post_init__(self) -> None:
        if not self.text.tokenizer.chat_template:
            raise ValueError("the tokenizer has no chat template for questions about images")

    def pieces(self, prompt: Prompt) -> list[list[int]]:
        """Token ids of the text before, between and after the images of a prompt; deviation: an
        image that ends a turn does not cost the turn its end token. Raises ValueError: see
        `check`."""
        self.check(prompt)
        system = {"role": "system", "content": SYSTEM}
        parts = render(prompt, self.text.tokenizer, join_parts, system).split(MARK)
        ids = [list(self.text.tokenizer(p, add_special_tokens=False)["input_ids"]) for p in parts]
        if ids[0][:1] != [self.ids["bos"]]:
            return ids
        return [ids[0], *(piece[piece[:1] != [self.ids["eot"]] :] for piece in ids[1:])]

    def positions(self, prompt: Prompt) -> int:
        return sum(self.tiling.rows(*size) for size in prompt.image_sizes)

    def album(self) -> EmbeddingAlbum:
        return EmbeddingAlbum(self.tiling, self.ids["eos"])


class EmbeddingAlbum(Album):
    """Images as fillers, whose tokens embeddings replace, each opened and cut once."""

    def __init__(self, tiling: Tiling, filler: int) -> None:
        super().__init__()
        self.tiling, self.filler = tiling, filler
        self.shown: list[PromptImage] = []
        self.tiles: list[Tensor] = []

    def _show(self, image: Image.Image) -> Row:
        size, first = image.size, sum(shown.rows for shown in self.shown)
        self.shown.append(PromptImage(*size, self.tiling.count(*size), self.tiling.rows(*size)))
        self.tiles.append(self.tiling.cut(image))
        count = self.shown[-1].rows
        return [self.filler] * count, list(range(first, first + count))

    def features(self, at: Tensor) -> Features | None:
        """The images with their pixels, whose embeddings replace tokens at `at` [B, L]."""
        return Features(at, tuple(self.shown), torch.cat(self.tiles)) if self.shown else None
