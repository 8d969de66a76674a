"""Messages of a row, and the images between their words.

Content is a text, or a list of parts as Hugging Face and OpenAI-compatible servers write them:

    {"type": "text", "text": "How many?"}
    {"type": "image"}                                   the next one of the column `images`
    {"type": "image", "image" | "url" | "path": …}      this one
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}

Content without an image is read as a text, other content as a list of parts whose image parts are
empty: the images themselves are in `Prompt.images`, in the same order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.config import ConfigError

Message = dict[str, Any]

IMAGE: Message = {"type": "image"}
_IMAGE_KEYS = ("image", "image_url", "url", "path")


def read_messages(given: Sequence[Any], place: str) -> tuple[list[Message], list[Any]]:
    """Read the messages of a row.

    Returns:
        The messages, and the value of each of their image parts; None for an empty part.

    Raises:
        ConfigError: an item is no message, or a part of its content is none.
    """
    messages, images = [], []
    for message in given:
        shaped = isinstance(message, dict) and {"role", "content"} <= message.keys()
        if not shaped or not isinstance(message["content"], str | list):
            raise ConfigError(
                f"{place}: {message!r} is not a message; one is"
                ' {"role": "user", "content": "a text"}.'
            )
        content, found = _content(message["content"], place)
        messages.append({**message, "content": content})
        images += found
    return messages, images


def assign_images(
    messages: list[Message], own: Sequence[Any], column: Sequence[Any], place: str
) -> tuple[list[Message], list[Any]]:
    """Give every image of a row a part in its messages.

    Args:
        messages: of a row.
        own: values of their image parts, see `read_messages`.
        column: images beside the messages. They fill empty parts; where there is no part at all
            they are put at the start of the first message of the user, as in TRL.
        place: the row, for messages.

    Returns:
        The messages, and the images in the order of their parts.

    Raises:
        ConfigError: not as many images as parts.
    """
    if not own:
        return (_put_first(messages, len(column), place) if column else messages), list(column)
    empty = sum(value is None for value in own)
    if empty == 0 and not column:
        return messages, list(own)
    if empty == len(own) == len(column):
        return messages, list(column)
    raise ConfigError(
        f"{place}: {len(own)} image parts, of which {empty} hold no image, and {len(column)}"
        " images beside the messages; give every image once."
    )


def user_message(text: str, images: int) -> Message:
    """A message of the user, images first."""
    parts = [*(dict(IMAGE) for _ in range(images)), {"type": "text", "text": text}]
    return {"role": "user", "content": parts if images else text}


def message_text(message: Message) -> str:
    """The words of a message, without its images."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def _content(content: str | list[Any], place: str) -> tuple[str | list[Message], list[Any]]:
    if isinstance(content, str):
        return content, []
    parts, images = [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif kind in ("image", "image_url"):
            parts.append(dict(IMAGE))
            images.append(_image(part))
        else:
            raise ConfigError(
                f"{place}: {part!r} is no part of a message; one is"
                ' {"type": "text", "text": "a text"} or {"type": "image"}.'
            )
    return (parts if images else "".join(part["text"] for part in parts)), images


def _image(part: Mapping[str, Any]) -> Any:
    value = next((part[key] for key in _IMAGE_KEYS if part.get(key) is not None), None)
    if value is None and part.get("base64") is not None:
        return f"data:image;base64,{part['base64']}"
    return value["url"] if isinstance(value, dict) and "url" in value else value


def _put_first(messages: list[Message], images: int, place: str) -> list[Message]:
    users = [n for n, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise ConfigError(f"{place} has images and no message of a user to show them in.")
    first = users[0]
    content = user_message(message_text(messages[first]), images)["content"]
    return [*messages[:first], {**messages[first], "content": content}, *messages[first + 1 :]]
