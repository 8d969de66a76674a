"""Messages of a row, and the pictures that stand between their words.

Content is a text, or a list of parts as Hugging Face and OpenAI-compatible servers write them:

    {"type": "text", "text": "How many?"}
    {"type": "image"}                                   the next one of the column `images`
    {"type": "image", "image" | "url" | "path": …}      its own
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}

Here they leave as texts where there is no picture, and otherwise as parts of which those of
pictures are bare: the pictures themselves are in order in `Prompt.images`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.config import ConfigError

Message = dict[str, Any]

IMAGE: Message = {"type": "image"}
_IMAGE_KEYS = ("image", "image_url", "url", "path")


def read_prompt(given: Sequence[Any], place: str) -> tuple[list[Message], list[Any]]:
    """The messages of a row, which end with the user; see `read_messages`."""
    messages, pictures = read_messages(given, place)
    if not messages or messages[-1]["role"] != "user":
        raise ConfigError(f"{place}: the messages must end with one of the user.")
    return messages, pictures


def read_messages(given: Sequence[Any], place: str) -> tuple[list[Message], list[Any]]:
    """Messages of a row.

    Returns:
        The messages, and for each of their pictures what stands for it; None for a bare part.

    Raises:
        ConfigError: something is no message or no part of one.
    """
    messages, pictures = [], []
    for message in given:
        shaped = isinstance(message, dict) and {"role", "content"} <= message.keys()
        if not shaped or not isinstance(message["content"], str | list):
            raise ConfigError(
                f"{place}: {message!r} is not a message; one is"
                ' {"role": "user", "content": "a text"}.'
            )
        content, found = _content(message["content"], place)
        messages.append({**message, "content": content})
        pictures += found
    return messages, pictures


def placed(
    messages: list[Message], own: Sequence[Any], column: Sequence[Any], place: str
) -> tuple[list[Message], list[Any]]:
    """Messages with a part for every picture, and the pictures in their order.

    Args:
        messages: of a row.
        own: what their parts hold, see `read_messages`.
        column: pictures beside the messages. They fill bare parts; where there is no part at all
            they stand at the start of the first message of the user, as in TRL.
        place: the row, for messages.

    Raises:
        ConfigError: not as many pictures as parts.
    """
    if not own:
        return (_in_front(messages, len(column), place) if column else messages), list(column)
    bare = sum(value is None for value in own)
    if bare == 0 and not column:
        return messages, list(own)
    if bare == len(own) == len(column):
        return messages, list(column)
    raise ConfigError(
        f"{place}: {len(own)} image parts, of which {bare} hold no picture, and {len(column)}"
        " pictures beside the messages; give every picture once."
    )


def user_message(text: str, pictures: int) -> Message:
    """A message of the user, pictures first."""
    parts = [*(dict(IMAGE) for _ in range(pictures)), {"type": "text", "text": text}]
    return {"role": "user", "content": parts if pictures else text}


def text_of(message: Message) -> str:
    """The words of a message, without its pictures."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def _content(content: str | list[Any], place: str) -> tuple[str | list[Message], list[Any]]:
    if isinstance(content, str):
        return content, []
    parts, pictures = [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif kind in ("image", "image_url"):
            parts.append(dict(IMAGE))
            pictures.append(_picture(part))
        else:
            raise ConfigError(
                f"{place}: {part!r} is no part of a message; one is"
                ' {"type": "text", "text": "a text"} or {"type": "image"}.'
            )
    return (parts if pictures else "".join(part["text"] for part in parts)), pictures


def _picture(part: Mapping[str, Any]) -> Any:
    value = next((part[key] for key in _IMAGE_KEYS if part.get(key) is not None), None)
    if value is None and part.get("base64") is not None:
        return f"data:image;base64,{part['base64']}"
    return value["url"] if isinstance(value, dict) and "url" in value else value


def _in_front(messages: list[Message], pictures: int, place: str) -> list[Message]:
    users = [n for n, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise ConfigError(f"{place} has pictures and no message of a user to show them in.")
    first = users[0]
    content = user_message(text_of(messages[first]), pictures)["content"]
    return [*messages[:first], {**messages[first], "content": content}, *messages[first + 1 :]]
