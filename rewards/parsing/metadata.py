"""Completion and metadata of samples as text rewards read them; errors name the sample."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from mmrl.config import Settings
from mmrl.types import Sample


@dataclass(kw_only=True, eq=False)
class TextReward(Settings, ABC):
    """A reward of texts, each by itself. One without the metadata `keys` has no score."""

    needs: ClassVar[tuple[str, ...]] = ("completion", "metadata")
    keys: ClassVar[tuple[str, ...]] = ()
    """Metadata that occurs together."""

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """See `score`; None without the metadata."""
        found = [read_sample(sample, self.where, *self.keys) for sample in samples]
        return [each and self.score(each[0], self.read(*each[1])) for each in found]

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where the metadata is no reference."""
        values = read_values(metadata, self.where, *self.keys)
        if values is not None:
            self.read(*values)

    def read(self, *values: Any) -> Any:
        """The reference that the values of `keys` are. Raises ValueError: they are none."""

    @abstractmethod
    def score(self, completion: str, reference: Any) -> float | None:
        """The raw score of a completion."""


def write_value(value: Any, name: str) -> str:
    """A text as it is, or a number with all its digits: 0.00001, and not 1e-05. Raises ValueError:
    it is neither, or not finite; says which, under `name`."""
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return format(Decimal(repr(value)) if isinstance(value, float) else value, "f")
    raise ValueError(f"{name} is {value!r}; it must be a text or a finite number")


def read_values(
    metadata: Mapping[str, Any], reward: str, *keys: str, of: str = "a prompt"
) -> list[Any] | None:
    """Read the values of keys that occur together; None if no key is present, and the reward does
    not apply. Messages name the reward, and the owner `of` the metadata. Raises ValueError: only
    some of the keys are present."""
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
    """Read the completion of a sample and the values of its metadata, see `read_values`. Raises
    ValueError: only some of the keys are present, or the completion is an image."""
    found = read_values(sample.metadata, reward, *keys, of=f"the sample {sample.prompt[:80]!r}")
    if found is None:
        return None
    if not isinstance(sample.completion, str):
        raise ValueError(
            f"The {reward} reward reads text, and the completion of {sample.prompt[:80]!r} is a "
            f"{type(sample.completion).__name__}; use it on text tasks only."
        )
    return sample.completion, found
