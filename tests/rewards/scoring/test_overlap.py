"""Rewards in threads of their own: when they start, what they are given, and how they end."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from mmrl.rewards import PartialFailure
from mmrl.rewards.http import stop
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.overlap import Overlap
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Sample

SAMPLES = [Sample(f"prompt {n}", "x" * n, {"index": n}) for n in range(12)]
SECONDS = 30.0


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread for thread in threading.enumerate() if thread.name.startswith("reward ")] == []


def lengths(samples: list[Sample]) -> list[Any]:
    return [float(len(str(sample.completion))) for sample in samples]


def entry(name: str, reward: Callable, **more: Any) -> dict[str, Any]:
    return {"name": name, "reward": reward, **more}


class Gated:
    """Lengths, once the gate is open; notes the calls and their threads."""

    def __init__(self, is_open: bool = True) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.calls: list[list[int]] = []
        self.threads: set[int] = set()
        if is_open:
            self.gate.set()

    def __call__(self, samples: list[Sample]) -> list[Any]:
        self.calls.append([sample.metadata["index"] for sample in samples])
        self.threads.add(threading.get_ident())
        self.begun.set()
        assert self.gate.wait(SECONDS)
        return lengths(samples)


def in_groups(scorer: Scorer, size: int = 4, expected: int = 12) -> Any:
    """All samples handed over in groups; not awaited."""
    pending = scorer.begin(expected)
    for first in range(0, 12, size):
        pending.add(SAMPLES[first : first + size])
    return pending


def test_a_group_is_scored_while_the_next_is_made_and_what_came_meanwhile_is_one_call() -> None:
    reward = Gated(is_open=False)
    scorer = Scorer([entry("gated", reward)])
    with Overlap([scorer]):
        pending = scorer.begin(12)
        pending.add(SAMPLES[:4])
        assert reward.begun.wait(SECONDS), "it starts before the others are there"
        pending.add(SAMPLES[4:8])
        pending.add(SAMPLES[8:])
        reward.gate.set()
        scores = pending.scores()
    assert reward.calls == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11]]
    assert scores.total == [float(n) for n in range(12)]
    assert scores.seconds["gated"] > 0 and scores.wait_s > 0


def test_two_rewards_work_at_the_same_time_and_each_in_one_thread() -> None:
    first, second = Gated(is_open=False), Gated(is_open=False)
    scorer = Scorer([entry("first", first), entry("second", second)])
    with Overlap([scorer]):
        for _ in range(2):
            pending = in_groups(scorer)
            assert first.begun.wait(SECONDS) and second.begun.wait(SECONDS), "neither has ended"
            first.gate.set(), second.gate.set()
            assert pending.scores().total == [2.0 * n for n in range(12)]
    assert len(first.threads) == len(second.threads) == 1 and first.threads != second.threads
    assert threading.get_ident() not in first.threads
    assert [n for call in first.calls for n in call] == [*range(12), *range(12)]


def unsteady(samples: list[Sample]) -> list[Any]:
    """Fails in each way a reward can, by the index of the sample."""
    found: list[Any] = [
        {3: None, 5: math.nan, 7: ValueError("lost")}.get(sample.metadata["index"], 1.0)
        for sample in samples
    ]
    if any(isinstance(result, Exception) for result in found):
        raise PartialFailure(found)
    return found


def raises_on_nine(samples: list[Sample]) -> list[Any]:
    if any(sample.metadata["index"] == 9 for sample in samples):
        raise ZeroDivisionError("nine")
    return lengths(samples)


def test_scores_and_failures_are_those_without_overlap_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entries = [entry("unsteady", unsteady, weight=2.0), entry("nine", raises_on_nine, offset=1.0)]
    whole, parts = (Scorer(entries, max_failures=0.2) for _ in range(2))
    expected, said = whole.score(SAMPLES), sorted(r.getMessage() for r in caplog.records)
    caplog.clear()
    with Overlap([parts]):
        found = in_groups(parts).scores()
    assert repr((found.components, found.failed, found.total)) == repr(
        (expected.components, expected.failed, expected.total)
    )
    assert parts.failures.counts == whole.failures.counts
    assert sorted(record.getMessage() for record in caplog.records) == said and len(said) == 3


@pytest.mark.parametrize(("limit", "stops"), [(0.16, True), (0.17, False), (2, False), (1, True)])
@pytest.mark.parametrize("enabled", [True, False])
def test_a_share_of_failures_is_one_of_all_samples_of_the_call(
    limit: float, stops: bool, enabled: bool
) -> None:
    scorer = Scorer([entry("unsteady", unsteady)], max_failures=limit)
    with Overlap([scorer], enabled):
        if stops:
            with pytest.raises(RewardError, match="'unsteady' failed on 2 of .*nan"):
                in_groups(scorer).scores()
        else:  # two of the four in the second group, which alone would be too many
            assert sum(in_groups(scorer).scores().failed["unsteady"]) == 2


def test_a_failure_stops_the_next_hand_over_and_other_calls() -> None:
    begun, ended = threading.Event(), []

    def busy(samples: list[Sample]) -> list[Any]:
        begun.set()
        try:
            while True:
                stop.sleep(0.01)
        finally:
            ended.append(len(samples))

    scorers = [Scorer([entry("nine", raises_on_nine)]), Scorer([entry("busy", busy)])]
    with pytest.raises(RewardError, match="'nine' failed on 12 of 12 "), Overlap(scorers):
        sampling = scorers[1].begin(1000)
        sampling.add(SAMPLES[:4])
        assert begun.wait(SECONDS)
        scorers[0].begin(12).add(SAMPLES)  # nobody waits for these
        for _ in range(1000):
            sampling.add(SAMPLES[:1])
            time.sleep(0.01)
    assert ended == [4]


def test_ctrl_c_interrupts_the_wait_and_the_call() -> None:
    ended = []

    def endless(samples: list[Sample]) -> list[Any]:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            while True:
                stop.sleep(0.01)
        finally:
            ended.append(True)

    scorer = Scorer([entry("endless", endless)])
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Overlap([scorer]):
            in_groups(scorer).scores()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert ended == [True]


def test_who_waits_for_scores_polls_and_leaves_when_that_raises() -> None:
    reward = Gated(is_open=False)
    scorer = Scorer([entry("gated", reward)])
    polls = []

    def poll(ended: int) -> None:
        polls.append(1)
        if len(polls) == 2:
            reward.gate.set()  # without this the end of the block waits for the call
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Overlap([scorer], poll=poll):
        in_groups(scorer).scores()
    assert len(polls) == 2


def test_a_call_that_does_not_stop_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mmrl.rewards.scoring.overlap.PATIENCE_STOPPED", 0.1)
    reward, started = Gated(is_open=False), time.monotonic()
    scorer = Scorer([entry("gated", reward)])
    with pytest.raises(KeyboardInterrupt), Overlap([scorer]):
        scorer.begin(12).add(SAMPLES)
        assert reward.begun.wait(SECONDS)
        raise KeyboardInterrupt
    assert time.monotonic() - started < 10
    assert "a call of reward gated has not ended; it ends with this process" in caplog.text
    [thread] = [each for each in threading.enumerate() if each.name == "reward gated"]
    assert thread.daemon
    reward.gate.set()
    thread.join(SECONDS)


class InStep(Gated):
    """A reward that the loop calls itself."""

    in_step = True


@pytest.mark.parametrize("enabled", [True, False])
def test_a_reward_in_step_is_called_by_the_loop_with_all_samples_or_none(enabled: bool) -> None:
    here, there = InStep(), Gated()
    scorer = Scorer([entry("here", here), entry("there", there)])
    with Overlap([scorer], enabled):
        pending = in_groups(scorer)
        assert here.calls == []
        assert pending.scores().total == [2.0 * n for n in range(12)]
        assert scorer.score([]).total == []
    assert here.calls == [[*range(12)], []] and here.threads == {threading.get_ident()}
    assert (threading.get_ident() in there.threads) is not enabled


def test_what_a_reward_sets_for_its_thread_stays_there() -> None:
    seen = []

    def setting(samples: list[Sample]) -> list[Any]:
        seen.append(torch.is_grad_enabled())
        torch.set_grad_enabled(False)
        torch.set_autocast_enabled("cpu", True)
        return lengths(samples)

    scorer = Scorer([entry("setting", setting)])
    with Overlap([scorer]), torch.inference_mode():
        in_groups(scorer, size=12).scores()
    assert seen == [True]
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_a_call_that_takes_longer_than_it_may_ends_the_wait_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmrl.rewards.scoring.overlap.PATIENCE_STOPPED", 0.1)
    reward = Gated(is_open=False)
    scorer = Scorer([entry("gated", reward)])
    late = pytest.raises(RewardError, match="reward gated has not returned .*ddp_timeout")
    with late, Overlap([scorer], limit=0.05):
        in_groups(scorer).scores()
    [thread] = [each for each in threading.enumerate() if each.name == "reward gated"]
    reward.gate.set()
    thread.join(timeout=30)
