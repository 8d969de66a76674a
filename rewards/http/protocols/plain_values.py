"""What a pickle may hold beside containers, and the refusal of everything else."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any

KEYS = (str, bytes, int, float, bool, type(None))
MAX_KEY = 2**61 - 2
"""Largest whole number as a key: beyond it numbers of one's choice share a hash."""


class PickleRefused(ValueError):
    """A pickle with something that is not admitted."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the pickle was refused, and nothing in it was run: {what}. Plain containers,"
            " numbers, texts and NumPy numbers and arrays are admitted."
        )


def keys(values: Iterable[Any]) -> list[Any]:
    """Values as keys of a dict or members of a set.

    Raises:
        PickleRefused: one is a container, or collides with others at will. (Tuples of numbers do,
            too: nothing random goes into their hash.)
    """
    found = list(values)
    for value in found:
        if type(value) not in KEYS or (type(value) is int and abs(value) > MAX_KEY):
            raise PickleRefused(f"{shown(value)} as a key or member")
    return found


def shown(value: Any) -> str:
    """A short text of any value, however large it is."""
    return reprlib.repr(value)[:80]
