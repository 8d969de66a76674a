"""The protocol: what a request holds, and why one, or an item of it, is refused.

Reading is strict: no unknown field, no conversion, no NaN. The answer has one item per item of the
request, with the same id.
"""

import math
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

MAX_TEXT = 2**18
"""Characters of a prompt or completion; an item with more fails alone."""
MAX_VALUES = 2**20
"""Commas and opening brackets of a body. A byte or two can claim an object of a hundred bytes."""
MAX_DEPTH = 32
"""Levels of metadata."""

Id = Annotated[str, Field(min_length=1, max_length=128)]


class Refusal(Exception):
    """A request that is answered with an error: a status of HTTP (4xx must not be tried again,
    except 408 and 429), the reason in one word for programs and in a `message` for people, with
    nothing of what was sent beyond short names, and the seconds after which another try may
    succeed."""

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after = retry_after


class Problem(NamedTuple):
    """Why an item has no score: a word for programs, a sentence for people."""

    code: str
    message: str


Outcome = float | None | Problem
"""A score, None where the reward does not apply, or why there is none."""


class Wire(BaseModel):
    """Base of all parts of a request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Png(Wire):
    """An image, whole and unchanged: nothing but PNG keeps a score the same."""

    mime: Literal["image/png"]
    data: str
    """Base64, without line breaks."""


class Clip(Wire):
    """A video, without loss."""

    mime: Literal["image/webp"]
    data: str
    """Base64, without line breaks, see `mmrl.types.video.Video.file`."""


class Item(Wire):
    """One sample. Its completion is a text, one image or a video."""

    id: Id
    prompt: str
    completion: str | None = None
    images: Annotated[list[Png], FailFast(), Field(max_length=16)] = []
    video: Clip | None = None
    reference_images: Annotated[list[Png], FailFast(), Field(max_length=16)] = []
    metadata: dict[str, Any] = {}


class ScoreRequest(Wire):
    """Samples for one reward. The same request sent twice is scored once."""

    id: Id
    reward: Annotated[str, Field(max_length=128)]
    items: Annotated[list[Item], FailFast()]


def read_request(body: bytes, max_items: int) -> ScoreRequest:
    """A request from the bytes of its body. Raises Refusal: it is not JSON, not of this form, or
    exceeds a limit."""
    if len(body) > MAX_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Refusal(413, "too_complex", f"A body may have {MAX_VALUES:,} values.")
    try:
        request = ScoreRequest.model_validate_json(body)
    except ValidationError as error:  # the answer holds no content of the request
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part)[:40] for part in first["loc"]) or "the body"
        is_json = first["type"] != "json_invalid"
        status, code = (422, "invalid_request") if is_json else (400, "bad_json")
        raise Refusal(status, code, f"{place}: {first['msg']}") from None
    items = request.items
    if len(items) > max_items:
        raise Refusal(413, "too_many_items", f"{len(items)} items; a request may have {max_items}.")
    if len({item.id for item in items}) < len(items):
        raise Refusal(422, "repeated_id", "items: two have the same id.")
    for n, item in enumerate(items):
        if not _is_plain(item.metadata, MAX_DEPTH):
            reason = f"a number is not finite or there are more than {MAX_DEPTH} levels."
            raise Refusal(422, "invalid_request", f"items.{n}.metadata: {reason}")
    return request


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, float):  # 1e999 is valid JSON
        return math.isfinite(value)
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_plain(each, depth - 1) for each in inner)
