"""Rewards of images on videos: the score of a video is that of frames that a rule chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from mmrl.rewards.parsing.images import video_of
from mmrl.rewards.registry.interface import complete, outcomes
from mmrl.types import Sample
from mmrl.types.video import choose_frames

if TYPE_CHECKING:
    from torch import Tensor


def score_frames(
    score: Callable[[list[Sample]], Sequence[Any]], samples: Sequence[Sample], rule: str
) -> list[Any]:
    """A result for each sample: the mean over its chosen frames, None where one has none. Raises
    PartialFailure: some frames could not be scored. Raises ValueError: a completion that is no
    video, or another number of scores than of frames."""
    videos = [video_of(sample, f"frames: {rule}") for sample in samples]
    places = [choose_frames(len(video), rule) for video in videos]
    frames = [
        replace(sample, completion=video.image(n))
        for sample, video, own in zip(samples, videos, places, strict=True)
        for n in own
    ]
    found = outcomes(score, frames)
    if len(found) != len(frames):
        raise ValueError(f"{len(found)} scores of {len(frames)} frames")
    rest = iter(found)
    return complete([_combine([next(rest) for _ in own]) for own in places])


def differentiate_frames(
    score: Callable[[list[Tensor], list[Sample]], Tensor],
    videos: Sequence[Tensor],
    samples: Sequence[Sample],
    rule: str,
) -> Tensor:
    """[n] float32, the same of videos as pixels [T, 3, H, W] in [0, 1], with their gradient; see
    `Differentiable.score_pixels`."""
    import torch

    places = [choose_frames(len(video), rule) for video in videos]
    pairs = [
        (video[n], s) for video, s, own in zip(videos, samples, places, strict=True) for n in own
    ]
    found = score([pixels for pixels, _ in pairs], [sample for _, sample in pairs])
    return torch.stack([part.mean() for part in found.split([len(own) for own in places])])


def _combine(scores: list[Any]) -> Any:
    """The result of a video: an exception or None before a mean."""
    errors = [each for each in scores if isinstance(each, Exception)]
    if errors or len(scores) == 1:
        return (errors or scores)[0]
    return None if any(each is None for each in scores) else fmean(map(float, scores))
