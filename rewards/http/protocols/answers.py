"""Shared by all protocols: metadata as JSON, and strict checks of answers."""

import json
import math
import reprlib
from collections.abc import Sequence
from numbers import Real
from typing import Any

from mmrl.rewards.judging.strict_json import strict_json
from mmrl.types import Sample

Outcome = float | None | Exception
"""A score, None where the reward does not apply, or why there is none."""


class AnswerError(ValueError):
    """An answer that violates the protocol."""


class ItemError(RuntimeError):
    """The server reports that it could not score an item; `what` are its words."""

    def __init__(self, what: object) -> None:
        super().__init__(f"the server could not score it: {str(what)[:300]}")


def read_lists(body: bytes, keys: Sequence[str], count: int) -> list[list[dict[str, Any]]]:
    """Lists of objects in an answer, one object per item. JSON without NaN and repeated keys.

    Raises:
        AnswerError: the answer has another form.
    """
    try:
        answer = strict_json(body)
        found = [answer[key] for key in keys]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise AnswerError(f"the answer has no {keys[0]} ({error!r}): {body[:200]!r}") from error
    for each in found:
        if not isinstance(each, list) or not all(isinstance(one, dict) for one in each):
            raise AnswerError(f"the answer has no list of objects: {body[:200]!r}")
        if len(each) != count:
            raise AnswerError(f"the answer has {len(each)} entries for {count} items")
    return found


def check_finite(score: Any) -> Outcome:
    """An outcome whose score is a finite number, or the error."""
    if score is None or isinstance(score, Exception):
        return score
    if isinstance(score, bool) or not isinstance(score, Real):
        return AnswerError(f"the score {reprlib.repr(score)} is no number")
    try:
        number = float(score)
    except OverflowError:  # a whole number may be any
        number = math.inf
    return number if math.isfinite(number) else AnswerError(f"the score {number} is not finite")


def plain_metadata(sample: Sample) -> dict[str, Any]:
    """The metadata of a sample, as JSON carries it.

    Raises:
        ValueError: names the key of what JSON cannot carry.
    """
    plain = {}
    for key, value in sample.metadata.items():
        try:
            plain[str(key)] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"the metadata {key!r} of {sample.prompt[:80]!r} cannot be sent as JSON: {error}"
            ) from error
    return plain
