"""What a probe finds out about rewards: range, failures, and those that cannot vary."""

from typing import Any

import pytest
from PIL import Image

from mmrl.preflight.reward_probe import Probe, format_probes, score_samples
from mmrl.rewards.scoring.terms import Term
from mmrl.types import Sample

SAMPLES = [Sample(f"prompt {n}", "x" * n) for n in range(6)]


def probed(reward: Any, samples: list[Sample] = SAMPLES) -> Probe:
    return score_samples("1 x mine", Term("mine", reward), samples)


def cells(row: Probe) -> dict[str, str]:
    head, line, *_ = format_probes([row])
    return dict(zip(head.split()[1:], line.removeprefix("1 x mine").split(), strict=True))


def test_range_deviation_none_failures_and_seconds_are_shown() -> None:
    def uneven(samples: list[Sample]) -> list[Any]:
        lengths = [len(str(sample.completion)) for sample in samples]
        return [None if n == 0 else float("nan") if n == 5 else float(n) for n in lengths]

    row = probed(uneven)
    found = cells(row)
    assert {key: found[key] for key in list(found)[:7]} == {
        "n": "6",
        "min": "1",
        "mean": "2.5",
        "max": "4",
        "deviation": "1.291",
        "none": "1",
        "failures": "1",
    }
    assert float(found["s/call"]) == pytest.approx(3 * float(found["s/sample"]), rel=0.1)
    assert not row.failed
    [warning] = row.warnings
    assert warning.startswith("failed on 1 of 6, first: returned nan; a score is finite")


def test_a_reward_that_gives_different_completions_one_score_cannot_vary() -> None:
    def constant(samples: list[Sample]) -> list[float]:
        return [0.25] * len(samples)

    assert probed(constant).warnings == ["cannot vary: 0.25 for 6 different completions"]
    white, black = (Image.new("RGB", (4, 4), color) for color in ("white", "black"))
    same, other = ([Sample("p", white), Sample("p", image)] for image in (white, black))
    assert probed(constant, same).warnings == []
    assert probed(constant, other).warnings == ["cannot vary: 0.25 for 2 different completions"]


def test_one_score_for_blank_images_and_noise_is_no_warning() -> None:
    term = Term("mine", lambda samples: [0.0] * len(samples))
    assert score_samples("1 x mine", term, SAMPLES, distinct=False).warnings == []
    failing = Term("mine", lambda samples: 1 / 0)
    assert "failed on 6" in score_samples("1 x mine", failing, SAMPLES, distinct=False).warnings[0]


def test_a_reward_that_scores_nothing_is_said_and_one_that_only_fails_has_failed() -> None:
    row = probed(lambda samples: [None] * len(samples))
    assert not row.failed and "no score for any" in row.warnings[0]
    row = probed(lambda samples: 1 / 0)
    assert row.failed and "failed on 6 of 6, first: raised ZeroDivisionError" in row.warnings[0]
    assert cells(row)["failures"] == "6" and cells(row)["mean"] == "-"


def test_a_reward_that_was_not_tried_has_its_reason_in_place_of_numbers() -> None:
    lines = list(format_probes([Probe("1 x gone", note="cannot run here: no answer")]))
    assert lines == ["1 x gone  cannot run here: no answer"]
