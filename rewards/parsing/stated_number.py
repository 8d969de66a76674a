"""The one number that an answer states, whatever its unit, spelling and number of decimals."""

import math
import re

from mmrl.rewards.parsing.wording import NUMBERS

_NUMBER = re.compile(
    r"(?<![\w.,])(?:-\s?)?[$€£]?-?"
    r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:e[+-]?\d+\b)?",
    re.IGNORECASE,
)
_NOT_DIGITS = re.compile(r"[\s$€£,]")
_WORD = re.compile(r"[a-z]+")


def parse_number(text: str) -> float | None:
    """The value of a text that is a number and nothing else; a currency or % makes none less."""
    found = _NUMBER.fullmatch(text.strip().removesuffix("%").strip())
    return _value(found[0]) if found else None


def find_number(text: str) -> float | None:
    """The value of the one number in a text; None for none, or for several that differ.

    Text before the last equals sign is ignored. Number words up to twenty count if there are no
    digits.
    """
    end = text.rpartition("=")[2]
    values = {_value(match[0]) for match in _NUMBER.finditer(end)}
    if not values:
        words = _WORD.findall(end.casefold())
        values = {float(NUMBERS.index(word)) for word in words if word in NUMBERS}
    return values.pop() if len(values) == 1 else None


def equal(one: float, other: float, decimals: int) -> bool:
    """Whether two numbers are equal when both are rounded."""
    if math.isinf(one) or math.isinf(other):
        return False
    return round(one, decimals) == round(other, decimals)


def _value(text: str) -> float:
    return float(_NOT_DIGITS.sub("", text))
