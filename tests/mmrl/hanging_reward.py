"""A reward that hangs on the last process from its second call on."""

import os
import time

from mmrl.types import Sample
from tests.mmrl.runs import redness


class HangingReward:
    """Redness, and then nothing."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, samples: list[Sample]) -> list[float]:
        self.calls += 1
        last = int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1
        if last and self.calls > 1:
            time.sleep(1000)
        return redness(samples)
