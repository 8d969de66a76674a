"""How steady a video is: the temporal term of UniRL's reward `video`.

    score = 1 - mean |frame - next frame|,   of channels in [0, 1]

    rewards:
      - {name: pickscore, frames: spread, scale: 0.0385, weight: 0.7}
      - {name: temporal, weight: 0.3}

are that reward: 0.7 of the mean score of eight frames and 0.3 of this. A still has 1, so alone it
rewards videos in which nothing moves.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mmrl.config import Settings
from mmrl.rewards.parsing.images import video_of
from mmrl.types import Sample, Video


@dataclass(kw_only=True, eq=False)
class TemporalReward(Settings):
    """Scores whole videos, from 0 to 1."""

    needs: ClassVar[tuple[str, ...]] = ("video",)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """The score of each video. Raises ValueError: a completion that is none."""
        return [1.0 - _mean_change(video_of(sample, "temporal")) for sample in samples]


def _mean_change(video: Video) -> float:
    """The mean absolute difference of neighbouring frames; 0 of a single one."""
    pairs = zip(video.frames, video.frames[1:], strict=False)
    changes = [np.abs(a.astype(np.int16) - b).mean() / 255 for a, b in pairs]
    return float(np.mean(changes)) if changes else 0.0
