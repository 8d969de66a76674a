"""To which split a problem belongs: a hash of what it is decides, not its wording."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

SPLITS = ("train", "validation", "test")
SHARES = {"test": 0.06, "validation": 0.03}
"""Shares of all problems that are held out; the others train."""


def digest(text: str) -> int:
    """A number below 2**64 that a text always has."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def split_of(key: str) -> str:
    """The split of the problem with this key."""
    place = digest(key) / 2**64
    if place < SHARES["test"]:
        return "test"
    return "validation" if place < SHARES["test"] + SHARES["validation"] else "train"


def deal(keys: Sequence[str], held_out: dict[str, int]) -> dict[str, list[str]]:
    """Few problems, dealt by the rank of their hash so that every split has its number of them."""
    ranked = sorted(keys, key=digest)
    test, validation = held_out["test"], held_out["validation"]
    return {
        "test": ranked[:test],
        "validation": ranked[test : test + validation],
        "train": ranked[test + validation :],
    }
