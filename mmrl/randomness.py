"""Explicit generators from a stable hash: equal names give equal draws on every machine.

Nothing in the project uses the global generator. The name of a draw says its purpose, such as
`generator(seed, "rollout", step, group, sample)`, so a run gives the same canvases and masks for
every number of processes, micro-batch size and order of evaluation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Generator


def stable_seed(*names: int | str) -> int:
    """A 63-bit seed from names, the same on every platform and Python version."""
    text = "\x1f".join(f"{type(name).__name__}:{name}" for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*names: int | str) -> Generator:
    """A generator seeded by `stable_seed(*names)`, on the CPU even for models on a GPU, so that a
    run draws the same numbers on both."""
    from torch import Generator

    return Generator().manual_seed(stable_seed(*names))


def as_generators(given: Any) -> list[Generator]:
    """One generator, or several, as a list; a TypeError for anything else, such as a seed."""
    from torch import Generator

    found = list(given) if isinstance(given, Sequence) else [given]
    for each in found:
        if not isinstance(each, Generator):
            allowed = "a torch.Generator, such as mmrl.randomness.generator(7)"
            raise TypeError(f"a generator is {each!r}; it must be {allowed}")
    return found


def permutation(length: int, *names: int | str) -> list[int]:
    """A permutation of range(length) drawn from the named generator."""
    import torch

    return torch.randperm(length, generator=generator(*names)).tolist()
