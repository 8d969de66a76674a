"""Shared by all protocols: metadata as JSON, and strict checks of answers."""

import math
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from mmrl.rewards.judging.strict_json import strict_json
from mmrl.types import Sample

Outcome = float | None | Exception
"""A score, None where the reward does not apply, or why there is none."""


class AnswerError(ValueError):
    """An answer that violates the protocol."""


class ItemError(RuntimeError):
    """The server reports that it could not score an item."""


class PassingError(ItemError):
    """The server lacked time or memory; another try may succeed."""


_PASSING = re.compile(r"time[ds]?[- _]?out|deadline exceeded|out ?of ?memory|memory ?error", re.I)


def item_error(what: Any, may_pass: bool = False) -> ItemError:
    """The failure of an item, as the server words it; a `PassingError` if it may pass and the words
    name a time-out or memory."""
    kind = PassingError if may_pass and _PASSING.search(str(what)) else ItemError
    return kind(f"the server could not score it: {str(what)[:300]}")


def read_json(body: bytes) -> Any:
    """JSON without NaN and without repeated keys.

    Raises:
        AnswerError: it is something else.
    """
    try:
        return strict_json(body)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"the answer is no JSON ({error}): {reprlib.repr(body)}") from error


def check_finite(score: Any) -> float | AnswerError:
    """A score as a finite number, or the error."""
    if isinstance(score, bool) or not isinstance(score, Real):
        return AnswerError(f"the score {reprlib.repr(score)} is no number")
    try:
        number = float(score)
    except OverflowError:  # a whole number may be any
        number = math.inf
    return number if math.isfinite(number) else AnswerError(f"the score {number} is not finite")


def check_ids(asked: Iterable[str], answered: Iterable[Any]) -> None:
    """Raise an `AnswerError` unless every item that was asked is answered once, and no other."""
    wanted, found = list(asked), list(answered)
    times = Counter(name for name in found if isinstance(name, str))
    lacking = [name for name in wanted if name not in times]
    twice = [name for name in wanted if times[name] > 1]
    strange = list(times.keys() - set(wanted))
    if lacking or twice or strange or len(found) != len(wanted):
        raise AnswerError(
            f"the answer has {len(found)} items for {len(wanted)}, without {lacking[:3]}, with"
            f" {reprlib.repr(strange[:3])} that were not asked for and {twice[:3]} twice"
        )


def copy_metadata(sample: Sample) -> dict[str, Any]:
    """The metadata of a sample, all of it JSON.

    Raises:
        ValueError: names the key of what JSON would not carry unchanged.
    """
    for key, value in sample.metadata.items():
        reason = "its key is no text" if not isinstance(key, str) else _problem(value)
        if reason:
            raise ValueError(
                f"the metadata {key!r} of {sample.prompt[:80]!r} cannot be sent: {reason}; metadata"
                " for a server is JSON."
            )
    return dict(sample.metadata)


def _problem(value: Any, depth: int = 0) -> str:
    """Why JSON would not carry a value; empty if it would."""
    if depth > 30:
        return "it has more than 30 levels"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is no number of JSON"
    if value is None or isinstance(value, str | bool | int | float):
        return ""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return "a key in it is no text"
        return next(filter(None, (_problem(each, depth + 1) for each in value.values())), "")
    if isinstance(value, list | tuple):
        return next(filter(None, (_problem(each, depth + 1) for each in value)), "")
    return f"it holds a {type(value).__name__}"
