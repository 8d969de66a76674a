"""Rewards that fail or hang after their first calls, for tests of what a run does then."""

import os
import time
from typing import Literal

from mmrl.types import Sample
from tests.mmrl.runs import redness


class BrokenReward:
    """Redness, until call number `after` is over."""

    def __init__(self, how: Literal["raises", "short"], after: int = 2) -> None:
        self.how, self.after, self.calls = how, after, 0

    def __call__(self, samples: list[Sample]) -> list[float]:
        self.calls += 1
        if self.calls > self.after and self.how == "raises":
            raise ZeroDivisionError("no pixels left")
        return redness(samples)[self.calls > self.after :]


class HangingReward:
    """Redness, and on the last process nothing from the second call on."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, samples: list[Sample]) -> list[float]:
        self.calls += 1
        last = int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1
        if last and self.calls > 1:
            time.sleep(1000)
        return redness(samples)
