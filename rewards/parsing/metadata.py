"""What a text reward reads from a sample, with errors that name the sample."""

from collections.abc import Mapping
from typing import Any

from mmrl.types import Sample


def read_values(
    metadata: Mapping[str, Any], reward: str, *keys: str, of: str = "a prompt"
) -> list[Any] | None:
    """One value per key; None where there is none of them, and the reward does not apply.

    Args:
        metadata: of a prompt or sample.
        reward: name of the reward, for messages.
        keys: metadata that must be there together.
        of: whose metadata they are, for messages.

    Raises:
        ValueError: only some of the keys are there.
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
    """The completion and the metadata values a text reward needs.

    Args:
        sample: what is scored.
        reward: name of the reward, for messages.
        keys: metadata that must be there together.

    Returns:
        The completion and one value per key; None where the metadata has none of the keys, which
        means that the reward does not apply.

    Raises:
        ValueError: only some of the keys are there, or the completion is an image.
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
