"""Conversations of prompts that show images: as one text with marks, or without the images."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from mmrl.models.layouts.chat_templates import render_chat
from mmrl.types import Prompt

MARK = "<image>"


def render(
    prompt: Prompt, tokenizer: PreTrainedTokenizerBase, show: Callable[..., Any], *before: Any
) -> str:
    """The conversation of a prompt through the chat template, and the prefill; `show` makes the
    content of a message of what `place_images` gives; messages `before` are those before a prompt
    that has none itself."""
    messages = prompt.messages or [*before, {"role": "user", "content": prompt.text}]
    shown = zip(messages, place_images(prompt, messages), strict=True)
    messages = [{**message, "content": show(words)} for message, words in shown]
    return f"{render_chat(tokenizer, messages, prompt.place or prompt.id)}{prompt.prefill}"


def place_images(prompt: Prompt, messages: Sequence[Mapping[str, Any]]) -> list[list[str | None]]:
    """The texts of messages, None for an image. Images are at the marks of the texts, which stay in
    them, else at the image parts of the messages, else before the first message of the user."""
    parts = [_parts(message["content"]) for message in messages]
    if any(MARK in part for words in parts for part in words if part is not None):
        return [[part for part in words if part is not None] for words in parts]
    if not any(part is None for words in parts for part in words):
        first = next((n for n, m in enumerate(messages) if m["role"] == "user"), 0)
        parts[first] = [*[None] * len(prompt.images or ()), *parts[first]]
    return parts


def without_images(prompt: Prompt) -> Prompt:
    """The prompt without images, image parts and marks, each mark with the blank after it."""
    messages = prompt.messages and [
        {**message, "content": _remove_marks(_text_of(message["content"]))}
        for message in prompt.messages
    ]
    return replace(prompt, text=_remove_marks(prompt.text), messages=messages, images=None)


def count_marks(prompt: Prompt) -> int:
    """How many marks the text of a prompt holds."""
    texts = [_text_of(m["content"]) for m in prompt.messages] if prompt.messages else [prompt.text]
    return sum(text.count(MARK) for text in texts)


def check_images(prompt: Prompt, several: bool = True) -> None:
    """Raise a ValueError unless a prompt has one image, or `several`, with a mark for each or none;
    it says how many there are."""
    images, marks = len(prompt.images or ()), count_marks(prompt)
    if images == 0 or marks not in (0, images) or (images > 1 and not several):
        wanted = "at least one image" if several else "exactly one image"
        raise ValueError(
            f"prompt {prompt.id!r} has {images} images and {marks} marks {MARK}; this checkpoint"
            f" reads {wanted}, with a mark for each or none."
        )


check_one_image = partial(check_images, several=False)
"""Raise a ValueError unless a prompt has exactly one image, and one mark or none."""


def join_parts(parts: Sequence[str | None]) -> str:
    """Texts and images (None) as one text; as in the public code a blank separates the mark of an
    image from the next mark, and a newline from text."""
    text = ""
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        text += part if part is not None else MARK + (" " if after is None else "\n")
    return text


def _remove_marks(text: str) -> str:
    return re.sub(rf"{MARK}\s?", "", text)


def _text_of(content: str | Sequence[Mapping[str, Any]]) -> str:
    return "".join(part for part in _parts(content) if part is not None)


def _parts(content: str | Sequence[Mapping[str, Any]]) -> list[str | None]:
    """The texts of a message, None for an image."""
    if isinstance(content, str):
        return [content]
    return [None if part["type"] == "image" else part["text"] for part in content]
