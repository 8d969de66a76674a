"""Reads completion and metadata of a sample for text rewards, with errors that name the sample."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from mmrl.types import Sample


def write_value(value: Any, name: str) -> str:
    """A text as it is, or a number with all its digits: 0.00001, and not 1e-05.

    Raises:
        ValueError: it is neither, or not finite; says which, under `name`.
    """
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return format(Decimal(repr(value)) if isinstance(value, float) else value, "f")
    raise ValueError(f"{name} is {value!r}; it must be a text or a finite number")


def read_values(
    metadata: Mapping[str, Any], reward: str, *keys: str, of: str = "a prompt"
) -> list[Any] | None:
    """Read one value per key; None if no key is present, and the reward does not apply.

    Args:
        metadata: of a prompt or sample.
        reward: name of the reward, for messages.
        keys: keys that occur together.
        of: owner of the metadata, for messages.

    Raises:
        ValueError: only some of the keys are present.
    """
    missing = [key for key in keys if metadata.get(key) is None]
    if keys and len(missing) == len(keys):
        return None
    if missing:
        raise ValueError(
            f"The {reward} reward needs the metadata {', '.join(keys)} together; {of} has no"
            f" {', '.join(missing)}."
        )
    return [metadata[key] for key in keys]


def read_sample(sample: Sample, reward: str, *keys: str) -> tuple[str, list[Any]] | None:
    """Read the completion of a sample and the values of its metadata, see `read_values`.

    Raises:
        ValueError: only some of the keys are present, or the completion is an image.
    """
    found = read_values(sample.metadata, reward, *keys, of=f"the sample {sample.prompt[:80]!r}")
    if found is None:
        return None
    if not isinstance(sample.completion, str):
        raise ValueError(
            f"The {reward} reward reads text, and the completion of {sample.prompt[:80]!r} is a "
            f"{type(sample.completion).__name__}; use it on text tasks only."
        )
    return sample.completion, found
