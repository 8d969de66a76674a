"""The weighted sum of rewards, what None means, and what a failure does."""

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.rewards import REWARDS, PartialFailure, build_reward, reward_class
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Chunk, Cutting, Prompt, Sample

SAMPLES = [Sample(f"prompt {n}", "x" * n, {"index": n}) for n in range(4)]


def length(samples: list[Sample]) -> list[float | None]:
    return [float(len(s.completion)) for s in samples]  # type: ignore[arg-type]


def fails_on(index: int, outcome: Any) -> Callable[[list[Sample]], list[Any]]:
    """A reward that gives 1.0, except on one sample, where it returns or raises `outcome`."""

    def reward(samples: list[Sample]) -> list[Any]:
        scores: list[Any] = [1.0] * len(samples)
        for n, sample in enumerate(samples):
            if sample.metadata["index"] == index:
                if isinstance(outcome, BaseException):
                    raise outcome
                scores[n] = outcome
        return scores

    return reward


def entry(name: str, reward: Callable, **numbers: float) -> dict:
    return {"name": name, "reward": reward, **numbers}


def test_the_total_is_the_weighted_sum_of_scaled_scores() -> None:
    entries = [
        entry("length", length, weight=2.0, scale=0.5, offset=-1.0),
        entry("one", lambda samples: [1.0] * len(samples), weight=0.25),
    ]
    scores = Scorer(entries).score(SAMPLES)
    assert scores.total == pytest.approx([2 * (0.5 * n - 1) + 0.25 for n in range(4)])
    assert scores.components == {"length": [0.0, 1.0, 2.0, 3.0], "one": [1.0] * 4}


@pytest.mark.parametrize(
    ("name", "good", "bad", "said"),
    [
        ("shapes", {"color": 1}, {"include": [], "tag": "colors"}, "include is"),
        ("math", {"answer": "#### 7"}, {"answer": " "}, "is empty"),
        ("countdown", {"numbers": [1, 2], "target": 3}, {"numbers": ["x"], "target": 3}, "whole"),
        ("countdown", {}, {"numbers": [1, 2]}, "a prompt has no target"),
        ("sudoku", {"puzzle": "01", "solution": "21"}, {"puzzle": "0", "solution": "21"}, "digits"),
    ],
)
def test_prompts_that_a_reward_cannot_score_are_named_or_where_failures_are_allowed_a_warning(
    name: str, good: dict, bad: dict, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def prompt(metadata: dict, place: str) -> Prompt:
        values = {key: value for key, value in metadata.items() if key != "answer"}
        return Prompt("0", "text", "?", None, None, metadata.get("answer"), values, place)

    prompts = [prompt(good, "f, line 1"), prompt(bad, "f, line 2"), prompt(bad, "f, line 3")]
    Scorer([{"name": name}]).check(prompts[:1])
    with pytest.raises(ConfigError, match=rf"^f, line 2 .*{said}.* \(2 such prompts of 3\)"):
        Scorer([{"name": name}]).check(prompts)
    Scorer([{"name": name}], max_failures=0.1).check(prompts)
    assert "f, line 2 cannot be scored" in caplog.text


@pytest.mark.parametrize(
    ("name", "fits", "other"),
    [("jpeg", "images", "texts"), ("math", "texts", "images"), ("shapes", "images", "texts")],
)
def test_a_reward_of_the_other_kind_of_completions_is_refused_before_any_is_sampled(
    name: str, fits: str, other: str
) -> None:
    Scorer([{"name": name}]).check([], fits)
    with pytest.raises(ConfigError, match=rf"the reward '{name}' scores .*give it to a task of"):
        Scorer([{"name": name}]).check([], other)


def test_a_reward_that_does_not_apply_is_left_out_of_the_sum() -> None:
    some = Scorer([entry("some", fails_on(1, None)), entry("length", length)]).score(SAMPLES)
    assert some.total == [1.0, 1.0, 3.0, 4.0]
    assert math.isnan(some.components["some"][1]) and not any(some.failed["some"])


@pytest.mark.parametrize("outcome", [math.nan, -math.inf, "high", True, RuntimeError("broken")])
def test_under_the_limit_only_the_failed_sample_loses_its_score(
    outcome: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scorer = Scorer([entry("bad", fails_on(2, outcome))], max_failures=0.25)
    with caplog.at_level(logging.WARNING):
        scores = scorer.score(SAMPLES)
    assert scores.total == [1.0, 1.0, None, 1.0]
    assert scores.failed["bad"] == [False, False, True, False]
    assert scores.components["bad"] == [1.0, 1.0, pytest.approx(math.nan, nan_ok=True), 1.0]
    assert "'prompt 2'" in caplog.text


def test_a_share_counts_per_call_and_a_number_counts_over_the_run() -> None:
    share = Scorer([entry("bad", fails_on(2, math.nan))], max_failures=0.25)
    for _ in range(5):
        share.score(SAMPLES)
    number = Scorer([entry("bad", fails_on(2, math.nan))], max_failures=2)
    number.score(SAMPLES)
    number.score(SAMPLES)
    with pytest.raises(RewardError, match="3 in this run"):
        number.score(SAMPLES)


@pytest.mark.parametrize(
    ("score", "numbers"),
    [(3e39, {}), (-1e37, {}), (10**400, {}), (1e30, {"scale": 1e10})]
    + [(1.0, {"scale": 1e30, "weight": -1e30}), (0.0, {"offset": 1e36, "weight": 2.0})]
    + [([1e30, 0.0], {"scale": 1e10})],
)
def test_what_float32_cannot_sum_is_a_failure_of_its_sample(score: Any, numbers: dict) -> None:
    chunks = (Chunk(0, "", "a"), Chunk(1, "a", "b"))
    samples = [Sample("p", "ab", chunks=chunks), Sample("q", "")]
    bad = {**entry("bad", lambda batch: [score if s.prompt == "p" else None for s in batch])}
    scores = Scorer([{**bad, **numbers}], max_failures=1).score(samples)
    assert scores.failed["bad"] == [True, False] and scores.total == [None, None]
    with pytest.raises(RewardError, match=r"'p': returned .*at most 1e\+36"):
        Scorer([{**bad, **numbers}]).score(samples)


def raises(samples: list[Sample]) -> list[float]:
    return [_inner(sample) for sample in samples]


def _inner(sample: Sample) -> float:
    return sample.metadata["nowhere"]


def test_a_reward_of_the_user_that_raises_shows_its_file_and_line_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(RewardError, match="raised KeyError"):
        Scorer([entry("own", raises)]).score(SAMPLES)
    line = _inner.__code__.co_firstlineno + 1
    assert caplog.text.count(f"({__file__}, line {line})") == 1 == len(caplog.records)
    caplog.clear()
    with pytest.raises(RewardError, match="raised ValueError"):
        Scorer([{"name": "jpeg"}]).score(SAMPLES)
    assert ", line " not in caplog.text


def test_a_network_error_is_retried_and_then_is_a_failure() -> None:
    calls = []

    def flaky(samples: list[Sample]) -> list[float]:
        calls.append(len(samples))
        if len(calls) < 3:
            raise ConnectionError("no route")
        return [1.0] * len(samples)

    assert Scorer([entry("flaky", flaky)], backoff=0.001).score(SAMPLES).total == [1.0] * 4
    assert calls == [4, 4, 4]
    down = fails_on(0, TimeoutError("down"))
    with pytest.raises(RewardError, match="4 of 4.*down") as caught:
        Scorer([entry("down", down)], max_failures=0.5, backoff=0.001).score(SAMPLES)
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_an_interruption_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        Scorer([entry("bad", fails_on(0, KeyboardInterrupt()))], max_failures=99).score(SAMPLES)


def test_the_same_reward_twice_needs_two_keys() -> None:
    twice = [entry("length", length), entry("length", length)]
    with pytest.raises(ValueError, match="'length' more than once.*`key`"):
        Scorer(twice)
    twice[1] = {**twice[1], "key": "length_again", "weight": 3.0}
    scores = Scorer(twice).score(SAMPLES)
    assert list(scores.components) == ["length", "length_again"]
    assert scores.total == [0.0, 4.0, 8.0, 12.0]


def test_samples_of_a_partial_failure_keep_their_scores_and_their_reasons(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = []

    def some(samples: list[Sample]) -> list[float]:
        calls.append(len(samples))
        raise PartialFailure([1.0, None, KeyError("lost"), 2.0])

    scores = Scorer([entry("some", some)], max_failures=0.25).score(SAMPLES)
    assert calls == [4], "what is known is not asked for again"
    assert scores.total == [1.0, None, None, 2.0]
    assert scores.failed["some"] == [False, False, True, False]
    assert "'prompt 2': KeyError: 'lost'" in caplog.text
    with pytest.raises(RewardError, match="1 of 4 samples.*KeyError: 'lost'"):
        Scorer([entry("some", some)]).score(SAMPLES)


class Chunks:
    """A reward that gives each chunk of a sample the scores in its metadata."""

    def __init__(self, size: int = 4) -> None:
        self.cutting = Cutting(size)

    def __call__(self, samples: list[Sample]) -> list[Any]:
        return [sample.metadata["chunks"] for sample in samples]


def in_chunks(*scores: Any) -> list[Sample]:
    """Samples of as many chunks as they have scores."""
    return [
        Sample("p", "x", {"chunks": own}, chunks=tuple(Chunk(n, "", "x") for n in range(len(own))))
        for own in scores
    ]


def test_every_part_adds_its_term_and_the_shares_of_parts_are_kept() -> None:
    entries = [
        entry("chunks", Chunks(), weight=2.0, scale=0.5, offset=1.0),
        entry("again", Chunks()),
        entry("whole", lambda samples: [10.0] * len(samples)),
    ]
    scorer = Scorer(entries)
    assert scorer.cutting == Cutting(4)
    scores = scorer.score(in_chunks([1.0, -1.0, 3.0], [2.0], []))
    assert scores.chunks == [[4.0, 0.0, 8.0], [6.0], []]
    assert scores.total == [22.0, 16.0, 10.0] and scores.outcomes() == [10.0, 10.0, 10.0]
    assert scores.components["chunks"][:2] == [1.0, 2.0] and math.isnan(
        scores.components["chunks"][2]
    )


@pytest.mark.parametrize(
    ("scores", "said"),
    [([1.0, math.nan], "returned nan"), ([1.0, None], "None for a chunk"), ([1.0, "a"], "'a'")],
)
def test_a_part_without_a_number_is_a_failure_of_its_sample(scores: list, said: str) -> None:
    scorer = Scorer([entry("chunks", Chunks())], max_failures=0.5)
    result = scorer.score(in_chunks(scores, [1.0]))
    assert result.failed["chunks"] == [True, False] and result.chunks == [[], [1.0]]
    with pytest.raises(RewardError, match=said):
        Scorer([entry("chunks", Chunks())]).score(in_chunks(scores))


def test_scores_of_parts_must_be_as_many_as_the_parts() -> None:
    short = entry("short", lambda samples: [[1.0]] * len(samples))
    with pytest.raises(RewardError, match="returned 1 scores for 2 chunks"):
        Scorer([short]).score(in_chunks([0.0, 0.0]))
    with pytest.raises(RewardError, match="returned 1 scores for 0 chunks"):
        Scorer([short]).score(SAMPLES)


def test_rewards_that_cut_differently_cannot_be_added_up_part_by_part() -> None:
    with pytest.raises(ValueError, match="one and two cut completions differently.*chunk_size"):
        Scorer([entry("one", Chunks(4)), entry("two", Chunks(8))])


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"name": "clipp"}], r"rewards\[0\].name is 'clipp'; allowed: .*clip, .*'clip'"),
        ([{"weight": 1.0}], r"rewards\[0\].name is None"),
        ([{"name": "clip", "batchsize": 3}], r"rewards\[0\].batchsize is not a setting"),
        ([{"name": "clip", "weight": "heavy"}], r"rewards\[0\].weight is 'heavy'"),
        ([{"name": "clip", "scale": math.nan}], r"rewards\[0\].scale is nan"),
        ([{"reward": length}], r"rewards\[0\] is .* it must be a callable with a `name`"),
    ],
)
def test_a_wrong_entry_is_refused_before_any_is_built(entries: list[dict], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scorer(entries)


def test_every_registered_reward_exists_and_weights_are_no_option_of_it() -> None:
    for name in REWARDS:
        assert callable(reward_class(name))
    with pytest.raises(ValueError, match="modle is not a setting"):
        build_reward({"name": "clip", "weight": 2.0, "scale": 3.0, "offset": 0.0, "modle": "x"})
