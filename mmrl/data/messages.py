"""Messages of a row, and the images between their words.

Content is a text, or a list of parts as Hugging Face and OpenAI-compatible servers write them:

    {"type": "text", "text": "How many?"}
    {"type": "image"}                                   the next one of the column `images`
    {"type": "image", "image" | "url" | "path": …}      this one
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}

Content without an image is read as a text, other content as a list of parts whose image parts are
empty: the images themselves are in `Prompt.images`, in the same order.
"""

from collections.abc import Sequence
from typing import Any

from mmrl.config import ConfigError

Message = dict[str, Any]

IMAGE: Message = {"type": "image"}
_IMAGE_KEYS = ("image", "image_url", "url", "path")


def read_messages(
    given: Sequence[Any], column: Sequence[Any], place: str
) -> tuple[list[Message], list[Any]]:
    """Read the messages of a row.

    Values of images in a `column` beside them fill empty parts; where there is no part at all they
    are put at the start of the first message of the user, as in TRL. Returns the messages, and the
    values of their images in the order of their parts. Raises ConfigError: no message, no part of
    one, or not as many images as parts."""
    messages, own = [], []
    for message in given:
        if not is_message(message):
            form = '{"role": "user", "content": "a text"}'
            raise ConfigError(f"{place}: {message!r} is not a message; one is {form}.")
        content, values = _read_content(message["content"], place)
        messages.append({**message, "content": content})
        own += values
    if column and not own:
        return _put_first(messages, len(column), place), list(column)
    empty = sum(value is None for value in own)
    if empty == 0 and not column:
        return messages, own
    if empty == len(own) == len(column):
        return messages, list(column)
    parts = f"{len(own)} image parts, of which {empty} hold no image"
    beside = f"{len(column)} images beside the messages; give every image once"
    raise ConfigError(f"{place}: {parts}, and {beside}.")


def is_message(value: Any) -> bool:
    """Whether a value has a role and content."""
    shaped = isinstance(value, dict) and "role" in value
    return shaped and isinstance(value.get("content"), str | list)


def message_text(message: Message) -> str:
    """The words of a message, without its images."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def _read_content(content: str | list[Any], place: str) -> tuple[str | list[Message], list[Any]]:
    if isinstance(content, str):
        return content, []
    parts, images = [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif kind in ("image", "image_url"):
            value = next((part[key] for key in _IMAGE_KEYS if part.get(key) is not None), None)
            parts.append(dict(IMAGE))
            images.append(value.get("url", value) if isinstance(value, dict) else value)
        else:
            form = '{"type": "text", "text": "a text"} or {"type": "image"}'
            raise ConfigError(f"{place}: {part!r} is no part of a message; one is {form}.")
    return (parts if images else "".join(part["text"] for part in parts)), images


def _put_first(messages: list[Message], images: int, place: str) -> list[Message]:
    for n, message in enumerate(messages):
        if message["role"] == "user":
            words = {"type": "text", "text": message_text(message)}
            content = [*(dict(IMAGE) for _ in range(images)), words]
            return [*messages[:n], {**message, "content": content}, *messages[n + 1 :]]
    raise ConfigError(f"{place} has images and no message of a user to show them in.")
