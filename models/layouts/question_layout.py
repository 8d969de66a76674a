"""Prompts that show images as canvases, whatever the network reads in place of an image."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.types import Prompt

Row = tuple[list[int], list[int]]
"""An image or a whole prompt: token ids, and of each the index of the embedding that replaces it or
of the image that it is of, -1 where there is none."""


class Album:
    """The images of a batch of prompts as rows, each opened once."""

    def __init__(self) -> None:
        self.rows: dict[Hashable, Row] = {}

    def add(self, images: Sequence[Image.Image], number: int) -> Row:
        """The row of an image of a prompt, which is opened unless it was before."""
        key = image_key(images, number)
        if key not in self.rows:
            self.rows[key] = self._show(images[number])
        return self.rows[key]

    def features(self, at: Tensor) -> Any:
        """The images whose embeddings replace tokens at `at` [B, L], or that tokens there are
        of; None where there are none."""

    def _show(self, image: Image.Image) -> Row:
        raise NotImplementedError


class QuestionLayout(Layout):
    """Renders prompts with images; a subclass says how images are shown.

    `text`: layout of the text; its `max_prompt_length` counts the text without the images.
    `max_length`: longest row, images and response included; None for any.
    """

    text: TextLayout
    max_length: int | None = None

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The tokens that end a response; the first pads it."""
        return self.text.stop_ids

    @property
    def banned(self) -> tuple[int, ...]:
        """Tokens that no response takes."""
        return ()

    def pieces(self, prompt: Prompt) -> list[list[int]]:
        """Token ids of the text before, between and after the images of a prompt. Raises
        ValueError: a prompt that the layout cannot take."""
        raise NotImplementedError

    def positions(self, prompt: Prompt) -> int:
        """How many positions the images of a prompt take; none is opened."""
        raise NotImplementedError

    def album(self) -> Album:
        """An empty album."""
        raise NotImplementedError

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Whether text and whole row, its response of `length` included, are within their limits;
        None for `max_completion_length`."""
        n = self.text.max_completion_length if length is None else length
        return self._excess(prompt, self.pieces(prompt), n) is None

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> TokenCanvas:
        """B prompts -> canvas with `length` masked positions, None for `max_completion_length`;
        images for a vision tower are not encoded yet, and the unconditional branch has mask tokens
        in place of prompt and images, as in the public samplers. Raises ValueError: a prompt that
        the layout cannot take, or that is too long."""
        n = self.text.max_completion_length if length is None else length
        pieces = [self.pieces(prompt) for prompt in prompts]
        for prompt, parts in zip(prompts, pieces, strict=True):
            if (excess := self._excess(prompt, parts, n)) is not None:
                raise ValueError(f"prompt {prompt.id!r} {excess}, or leave the prompt out.")
        album, rows = self.album(), []
        for prompt, parts in zip(prompts, pieces, strict=True):
            shown = [album.add(prompt.images or (), number) for number in range(len(parts) - 1)]
            rows.append(with_images(parts, shown))
        canvas = self.text.lay_out([ids for ids, _ in rows], n)
        width = canvas.tokens.shape[1] - n
        at = torch.tensor([[-1] * (width - len(at)) + at + [-1] * n for _, at in rows])
        features = album.features(at)
        return replace(canvas, features=features, stop_ids=self.stop_ids, banned=self.banned)

    def decode(self, canvas: Any) -> list[str]:
        return self.text.decode(canvas)

    def _excess(self, prompt: Prompt, pieces: Sequence[list[int]], n: int) -> str | None:
        """What is too long about a prompt, as the rest of a sentence; None if nothing is."""
        tokens, limit, longest = sum(map(len, pieces)), self.text.max_prompt_length, self.max_length
        if tokens > limit:
            return f"has {tokens} tokens beside its images; max_prompt_length is {limit}. Raise it"
        whole = tokens + n + self.positions(prompt)
        if longest is None or whole <= longest:
            return None
        return f"takes {whole} tokens with images and completion, the checkpoint {longest}. Cut it"


def with_images(pieces: Sequence[list[int]], images: Sequence[Row]) -> Row:
    """The row of a prompt from the token ids of its text and the rows of the images between."""
    row, at = list(pieces[0]), [-1] * len(pieces[0])
    for (ids, places), piece in zip(images, pieces[1:], strict=True):
        row += [*ids, *piece]
        at += [*places, *[-1] * len(piece)]
    return row, at


def image_key(images: Sequence[Image.Image], number: int) -> Hashable:
    """Equal for the same image of prompts: of the same `images`, or of the same source of a file;
    the image itself may be another object at every access."""
    sources = getattr(images, "sources", None)
    return (id(images), number) if sources is None else id(sources[number])
