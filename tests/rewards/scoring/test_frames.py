"""Rewards of images on videos: which frames they score, and what is refused before sampling."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.planning.reward_probe import make_dummy_samples
from mmrl.rewards import PartialFailure
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rewards.scoring.terms import check_entries
from mmrl.types import Prompt, Sample, Video


class Brightness:
    """A reward of images, with a gradient."""

    needs: ClassVar[tuple[str, ...]] = ("images",)

    def __call__(self, samples: list[Sample]) -> list[float]:
        return [float(np.asarray(sample.completion).mean()) for sample in samples]

    def score_pixels(self, pixels: list[Tensor], samples: list[Sample]) -> Tensor:
        assert len(pixels) == len(samples)
        return torch.stack([image.mean() for image in pixels])


def motion(samples: list[Sample]) -> list[float]:
    """A reward of whole videos."""
    return [float(abs(np.diff(s.completion.frames.astype(int), axis=0)).mean()) for s in samples]  # type: ignore[union-attr]


def video(*shades: int) -> Sample:
    frames = [np.full((4, 6, 3), shade, np.uint8) for shade in shades]
    return Sample("x", Video(np.stack(frames), 8))


def entry(**more: Any) -> dict[str, Any]:
    return {"name": "brightness", "reward": Brightness(), **more}


@pytest.mark.parametrize(
    ("rule", "scores"),
    [("first", [0, 9]), ("last", [40, 3]), ("middle", [10, 3]), ("mean", [15, 6])]
    + [("spread", [(3 * 0 + 4 * 10 + 40) / 8, (7 * 9 + 3) / 8])],
)
def test_a_reward_of_images_scores_the_frames_of_its_rule(rule: str, scores: list[float]) -> None:
    samples = [video(0, 10, 10, 40), video(9, 3)]
    found = Scorer([entry(frames=rule)]).score(samples)
    assert found.components["brightness"] == pytest.approx(scores)


def test_a_reward_of_videos_sees_all_frames() -> None:
    scorer = Scorer([{"name": "motion", "reward": motion}, entry(frames="mean")])
    scorer.check([Prompt("0", "text_to_video", "x")], "videos")
    found = scorer.score([video(0, 10, 10, 40)])
    assert found.components["motion"] == pytest.approx([40 / 3])


def test_frames_with_the_temporal_term_are_those_of_unirl_by_hand() -> None:
    """Eight of fifteen frames: 0, 2, …, 14. Neighbours differ by 17 of 255, the last two by 34."""
    shades = [17 * (n % 2) for n in range(14)] + [51]
    framed = entry(frames="spread", scale=1 / 255, weight=0.7)
    scorer = Scorer([framed, {"name": "temporal", "weight": 0.3}])
    scorer.check([], "videos")
    found = scorer.score([video(*shades), video(9)])
    change = (13 * 17 + 34) / 14 / 255
    assert found.components["temporal"] == pytest.approx([1 - change, 1])
    totals = [0.7 * 51 / 8 / 255 + 0.3 * (1 - change), 0.7 * 9 / 255 + 0.3]
    assert found.total == pytest.approx(totals)
    with pytest.raises(ConfigError, match="'temporal' scores videos, and completions .* images"):
        Scorer([{"name": "temporal"}]).check([], "images")


def test_a_frame_that_fails_fails_its_video_alone_and_none_stays_none() -> None:
    def some(samples: list[Sample]) -> list[Any]:
        shades = [int(np.asarray(sample.completion)[0, 0, 0]) for sample in samples]
        found = [{7: None, 8: ValueError("no 8")}.get(shade, float(shade)) for shade in shades]
        if any(isinstance(each, Exception) for each in found):
            raise PartialFailure(found)  # type: ignore[arg-type]
        return found

    scorer = Scorer([{"name": "some", "reward": some, "frames": "mean"}], max_failures=9)
    found = scorer.score([video(1, 3), video(1, 8), video(7, 1)])
    assert found.components["some"][0] == 2 and found.failed["some"] == [False, True, False]
    assert np.isnan(found.components["some"][1:]).all()


def test_the_gradient_is_that_of_the_chosen_frames() -> None:
    pixels = [torch.rand(n, 3, 4, 6, requires_grad=True) for n in (4, 2)]
    scorer = Scorer([entry(frames="mean", weight=2)])
    found = scorer.differentiate(pixels, [video(0, 1, 2, 3), video(0, 1)])
    assert torch.allclose(found, torch.stack([2 * each.mean() for each in pixels]))
    last = Scorer([entry(frames="last")]).differentiate(pixels, [video(0), video(0)])
    given = torch.autograd.grad(last.sum(), pixels)
    assert not given[0][:-1].any() and given[0][-1].all()


@pytest.mark.parametrize(
    ("more", "made", "text"),
    [
        ({}, "videos", "frames of the reward 'brightness' is None; .*first, .*, spread, mean"),
        ({"frames": "first"}, "images", "frames of .* 'first'; .*completions are images"),
        ({}, "texts", "scores images, and completions of this task are texts"),
    ],
)
def test_what_a_reward_cannot_score_is_refused_before_sampling(
    more: dict[str, Any], made: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        Scorer([entry(**more)]).check([Prompt("0", "text_to_video", "x")], made)


def test_an_unknown_rule_is_refused_with_the_settings() -> None:
    with pytest.raises(ValueError, match=r"\[0\].frames is 'every'.*mean, middle, spread"):
        check_entries([{"name": "jpeg", "frames": "every"}])


def test_a_probe_scores_dummy_videos() -> None:
    prompts = [Prompt("0", "text_to_video", "x")]
    samples = make_dummy_samples("text_to_video", prompts, 2, 8)
    found = Scorer([{"name": "jpeg", "frames": "mean"}]).score(samples)
    assert all(score != 0 for score in found.components["jpeg"])
