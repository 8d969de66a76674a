"""A reward that fails on request, for tests of what a run does then."""

from typing import Literal

from mmrl.types import Sample
from tests.mmrl.runs import redness


class BrokenReward:
    """Redness, until call number `after` is over."""

    def __init__(self, how: Literal["raises", "nan", "short"], after: int = 2) -> None:
        self.how, self.after, self.calls = how, after, 0

    def __call__(self, samples: list[Sample]) -> list[float]:
        self.calls += 1
        scores = redness(samples)
        if self.calls <= self.after:
            return scores
        if self.how == "raises":
            raise ZeroDivisionError("no pixels left")
        return scores[1:] if self.how == "short" else [float("nan"), *scores[1:]]
