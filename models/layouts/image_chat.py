"""Questions about images as canvases, for networks that see embeddings (LLaDA-V).

    eos* conversation with an image's embeddings in place of every `<image>` | mask×n

The conversation is the tokenizer's chat template with LLaDA-V's system message before it; padding
is masked as in `TextLayout`. As in the public code, the text between images is tokenised piece by
piece, and pieces after an image lose their first token, the newline after `<image>`, where the
first piece begins with the token that begins a text.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from PIL import Image
from torch import Tensor

from mmrl.types import Canvas, Features, Prompt, PromptImage
from models.layouts.anyres import Tiling
from models.layouts.image_marks import MARK, count_marks, rendered
from models.layouts.text_layout import TextLayout

SYSTEM = (
    "You are a helpful language and vision assistant. You are able to understand the visual"
    " content that the user provides, and assist the user with a variety of tasks using natural"
    " language."
)


@dataclass(frozen=True)
class ImageChat:
    """Renders prompts with images as canvases, every response position masked.

    Args:
        text: layout of the words; its `max_prompt_length` counts them without the images.
        ids: of the special tokens of the text, and `bos`, `header` and `end_header` of turns.
        tiling: of the images.
        max_length: longest row, images and response included; None for any.
    """

    needs_vq: ClassVar[bool] = False
    needs_tower: ClassVar[bool] = True

    text: TextLayout
    ids: Mapping[str, int]
    tiling: Tiling
    max_length: int | None = None

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The end of a turn, which ends a response and stands behind its end."""
        return (self.ids["eot"],)

    @property
    def banned(self) -> tuple[int, ...]:
        """What no response takes."""
        return tuple(self.ids[key] for key in ("eos", "bos", "header", "end_header"))

    def __post_init__(self) -> None:
        if not self.text.tokenizer.chat_template:
            raise ValueError(
                "the tokenizer has no chat template, which questions about images are rendered"
                " with; copy chat_template.jinja or tokenizer_config.json of the checkpoint again"
            )

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError unless a prompt has images, and a mark for each of them or none."""
        _check_marks(prompt, count_marks(prompt) or len(prompt.images or ()))

    def pieces(self, prompt: Prompt) -> list[list[int]]:
        """Token ids of the words before, between and behind the images of a prompt.

        Deviation: an image that ends a turn takes nothing away from the token of the end.

        Raises:
            ValueError: no image, or another number of marks than of images.
        """
        parts = rendered(prompt, self.text.tokenizer, SYSTEM).split(MARK)
        _check_marks(prompt, len(parts) - 1)
        ids = [list(self.text.tokenizer(p, add_special_tokens=False)["input_ids"]) for p in parts]
        if ids[0][:1] != [self.ids["bos"]]:
            return ids
        return [ids[0], *(piece[piece[:1] != [self.ids["eot"]] :] for piece in ids[1:])]

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Whether words and whole row, its response of `length` included, are within their limits;
        None for `max_completion_length`."""
        n = self.text.max_completion_length if length is None else length
        return self._excess(prompt, self.pieces(prompt), n) is None

    def positions(self, prompt: Prompt) -> int:
        """How many positions the images of a prompt take; none is opened."""
        return sum(self.tiling.rows(*size) for size in prompt.image_sizes)

    def album(self) -> Album:
        """For the images of a batch."""
        return Album(self.tiling, self.ids["eos"])

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas:
        """B prompts -> canvas with `length` masked positions; no network has seen its images yet.

        The twin has mask tokens in place of the prompt, its images included. As in the public
        sampler a response ends with the end of a turn, and no other structural token is written.

        Raises:
            ValueError: a prompt that is no question about images, or is too long.
        """
        n = self.text.max_completion_length if length is None else length
        album, rows, places = self.album(), [], []
        for prompt in prompts:
            pieces = self.pieces(prompt)
            if (excess := self._excess(prompt, pieces, n)) is not None:
                raise ValueError(f"prompt {prompt.id!r} {excess}, or leave the prompt out.")
            shown = [album.stands(prompt.images or (), n) for n in range(len(pieces) - 1)]
            row, at = with_images(pieces, shown)
            rows.append(row)
            places.append(at)
        canvas = self.text.laid_out(rows, n)
        width = canvas.tokens.shape[1] - n
        at = torch.tensor([[-1] * (width - len(row)) + row + [-1] * n for row in places])
        return replace(
            canvas, features=album.features(at), stop_ids=self.stop_ids, banned=self.banned
        )

    def decode(self, canvas: Canvas) -> list[str]:
        """Finished canvas -> B texts, see `TextLayout.decode`."""
        return self.text.decode(canvas)

    def _excess(self, prompt: Prompt, pieces: Sequence[list[int]], n: int) -> str | None:
        """What is too long about a prompt, as the rest of a sentence; None if nothing is."""
        words = sum(map(len, pieces))
        if words > self.text.max_prompt_length:
            limit = self.text.max_prompt_length
            return f"has {words} tokens beside its images; max_prompt_length is {limit}. Raise it"
        whole = words + n + self.positions(prompt)
        if self.max_length is not None and whole > self.max_length:
            return (
                f"takes {whole} tokens with its images and {n} of completion, and the checkpoint"
                f" {self.max_length} (tokenizer_model_max_length). Show it smaller"
            )
        return None


def _check_marks(prompt: Prompt, marks: int) -> None:
    count = len(prompt.images or ())
    if count == 0 or marks != count:
        raise ValueError(
            f"prompt {prompt.id!r} has {count} images and {marks} marks {MARK}; give one mark per"
            " image, at least one, or none to have the images come first."
        )


Stands = tuple[list[int], list[int]]
"""What stands for an image or a whole prompt: token ids, and which embedding stands in the place of
each, -1 where the token does."""


def with_images(pieces: Sequence[list[int]], images: Sequence[Stands]) -> Stands:
    """A row of words with images between them.

    Args:
        pieces: token ids before, between and behind the images.
        images: what stands for each of them.
    """
    row, at = list(pieces[0]), [-1] * len(pieces[0])
    for (ids, places), piece in zip(images, pieces[1:], strict=True):
        row += [*ids, *piece]
        at += [*places, *[-1] * len(piece)]
    return row, at


def image_key(images: Sequence[Image.Image], number: int) -> Hashable:
    """Equal for the same image of prompts: of the same `images`, or of the same source of a file.

    Not the image itself, which may be another object whenever it is taken.
    """
    sources = getattr(images, "sources", None)
    return (id(images), number) if sources is None else id(sources[number])


class Album:
    """The images of a batch of prompts, each opened and cut once."""

    def __init__(self, tiling: Tiling, filler: int) -> None:
        self.tiling, self.filler, self.count = tiling, filler, 0
        self.images: dict[Hashable, tuple[PromptImage, Tensor, range]] = {}

    def stands(self, images: Sequence[Image.Image], number: int) -> Stands:
        """What stands for an image of a prompt: the filler, and embeddings in its place."""
        key = image_key(images, number)
        if key not in self.images:
            image, tiling = images[number], self.tiling
            size = image.size
            shown = PromptImage(*size, tiling.count(*size), tiling.rows(*size))
            places = range(self.count, self.count + shown.rows)
            self.images[key] = shown, tiling.cut(image), places
            self.count += shown.rows
        places = self.images[key][2]
        return [self.filler] * len(places), list(places)

    def features(self, at: Tensor) -> Features | None:
        """The images with their pixels, standing at the places `at` [B, L]; None without images."""
        if not self.images:
            return None
        shown, tiles, _ = zip(*self.images.values(), strict=True)
        return Features(at, tuple(shown), torch.cat(tiles))
