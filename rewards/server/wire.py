"""The models of the protocol, and a request read from its bytes.

Reading is strict: no unknown field, no conversion, no NaN. The answer has one item per item of the
request, with the same id.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError
from pydantic_core import from_json

from mmrl.rewards.server.refusal import Refusal

MAX_TEXT = 2**18
"""Characters of a prompt or completion; an item with more fails alone."""
MAX_VALUES = 2**20
"""Commas and opening brackets of a body. A byte or two can claim an object of a hundred bytes."""
MAX_DEPTH = 32
"""Levels of metadata."""

Id = Annotated[str, Field(min_length=1, max_length=128)]


class Wire(BaseModel):
    """Base of all messages."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Png(Wire):
    """An image, whole and unchanged: nothing but PNG keeps a score the same."""

    mime: Literal["image/png"]
    data: str
    """Base64, without line breaks."""


class Item(Wire):
    """One sample. Its completion is a text or one image."""

    id: Id
    prompt: str
    completion: str | None = None
    images: Annotated[list[Png], FailFast(), Field(max_length=16)] = []
    reference_images: Annotated[list[Png], FailFast(), Field(max_length=16)] = []
    metadata: dict[str, Any] = {}


class ScoreRequest(Wire):
    """Samples for one reward. The same request sent twice is scored once."""

    id: Id
    reward: Annotated[str, Field(max_length=128)]
    items: Annotated[list[Item], FailFast()]


class Problem(Wire):
    """Why there is no score: a word for programs, a sentence for people."""

    code: str
    message: str


class ItemScore(Wire):
    """A finite score; without an error, None means that the reward does not apply."""

    id: str
    score: float | None = None
    components: dict[str, float] = {}
    error: Problem | None = None


class ScoreResponse(Wire):
    """The items of a request, in its order."""

    id: str
    reward: str
    version: str
    items: list[ItemScore]


class ErrorResponse(Wire):
    """The answer to a request that was refused as a whole."""

    error: Problem


Status = Literal["ok", "loading", "failed"]


class RewardHealth(Wire):
    """One reward. `scale` is the range of its raw scores, `needs` what its items have to bring."""

    name: str
    version: str
    device: str
    scale: str
    needs: list[str]
    status: Status
    error: str | None = None


class LimitsHealth(Wire):
    """What a request may hold."""

    max_items: int
    max_bytes: int
    max_pixels: int


class Health(Wire):
    """The server: `ok` once all its rewards are loaded."""

    status: Status
    rewards: list[RewardHealth]
    limits: LimitsHealth


def read_request(body: bytes | bytearray, max_items: int) -> ScoreRequest:
    """A request from the bytes of its body.

    Raises:
        Refusal: it is not JSON, not of this form, or exceeds a limit.
    """
    if len(body) > MAX_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Refusal(413, "too_complex", f"A body may have {MAX_VALUES:,} values.")
    try:
        content = from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise Refusal(400, "bad_json", f"The body is no JSON: {error}") from None
    items = content.get("items") if isinstance(content, dict) else None
    if isinstance(items, list) and len(items) > max_items:
        raise Refusal(413, "too_many_items", f"{len(items)} items; a request may have {max_items}.")
    try:
        request = ScoreRequest.model_validate(content)
    except ValidationError as error:
        raise Refusal(422, "invalid_request", _first(error)) from None
    _check_items(request.items)
    return request


def _first(error: ValidationError) -> str:
    """Where and how a request is wrong, without its content."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part)[:40] for part in first["loc"]) or "the body"
    return f"{place}: {first['msg']}"


def _check_items(items: list[Item]) -> None:
    seen: set[str] = set()
    for n, item in enumerate(items):
        if item.id in seen:
            raise Refusal(422, "repeated_id", f"items.{n}.id: another item has this id.")
        seen.add(item.id)
        if not _is_plain(item.metadata, MAX_DEPTH):
            reason = f"a number is not finite or there are more than {MAX_DEPTH} levels."
            raise Refusal(422, "invalid_request", f"items.{n}.metadata: {reason}")


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, float):  # 1e999 is valid JSON
        return math.isfinite(value)
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_plain(each, depth - 1) for each in inner)
