"""Motion as a reward: what a video model learns within minutes, to see that a run works."""

from collections.abc import Sequence

from mmrl.types import Sample, Video


def motion(samples: Sequence[Sample]) -> list[float]:
    """How much the last frame of each video differs from the first: the mean over all numbers, from
    0, where nothing moved, to 1."""
    return [_differ(sample.completion) for sample in samples]


def _differ(video: object) -> float:
    assert isinstance(video, Video), "the reward motion scores videos"
    first, last = video.frames[[0, -1]] / 255
    return float(abs(last - first).mean())
