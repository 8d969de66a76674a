"""A reward that does what the metadata of a sample says."""

import time
from typing import Any

from mmrl.types import Sample


class MoodyReward:
    """Scores `metadata["score"]` after `metadata["seconds"]`, or misbehaves as `metadata["do"]`.

    Args:
        loading: seconds its constructor takes.
        broken: whether it fails to load.
    """

    def __init__(self, loading: float = 0.0, broken: bool = False) -> None:
        time.sleep(loading)
        if broken:
            raise FileNotFoundError("moody.model does not exist")

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        time.sleep(max(float(sample.metadata.get("seconds", 0)) for sample in samples))
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> Any:
        match sample.metadata.get("do"):
            case "raise":
                raise KeyError("mood")
            case "exit":
                raise SystemExit(3)
            case "lose the network":
                raise ConnectionError("nobody there")
            case "nan":
                return float("nan")
            case "word":
                return "good"
        return sample.metadata.get("score")
