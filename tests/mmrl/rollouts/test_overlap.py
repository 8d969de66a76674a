"""Rewards that work while the run samples: order of events, equal runs, errors."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmrl.rl import train
from mmrl.rollouts import rollout
from mmrl.run.run_directory import RunDirectory
from mmrl.types import Sample
from tests.mmrl.runs import World, metrics, redness, run_config, same_weights

SECONDS = 60.0
GROUPS = {"num_prompts": 3, "rollout_batch_size": 4}
"""Three groups of four, each sampled for itself."""


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread for thread in threading.enumerate() if thread.name.startswith("reward ")] == []


class Order:
    """What happened, in order, and who waits for what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.changed = threading.Condition()
        self.sampled, self.awaited = 0, ""
        monkeypatch.setattr("mmrl.rollouts.rollout.sample", self.sample)

    def note(self, event: str) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def wait(self, event: str) -> None:
        """Until an event has happened."""
        with self.changed:
            assert self.changed.wait_for(lambda: event in self.events, SECONDS), event

    def sample(self, *arguments: Any) -> Any:
        """The sampler; from the second batch on it waits for `awaited` before it ends."""
        self.sampled += 1
        self.note(f"batch {self.sampled}")
        if self.awaited and self.sampled > 1:
            self.wait(self.awaited)
        return rollout.__dict__["_sample"](*arguments)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Order:
    monkeypatch.setattr(rollout, "_sample", rollout.sample, raising=False)
    return Order(monkeypatch)


def test_a_group_is_scored_while_the_next_is_sampled(
    world: World, tmp_path: Path, order: Order
) -> None:
    sizes, order.awaited = [], "reward begins"

    def waiting(samples: list[Sample]) -> list[float]:
        sizes.append(len(samples))
        order.note("reward begins")
        order.wait("batch 2")
        return redness(samples)

    task = {**GROUPS, "rewards": [{"name": "waiting", "reward": waiting}]}
    train(run_config(world, tmp_path, task=task, max_steps=1, save_steps=0))
    assert sizes[0] == 4 and sum(sizes) == 12
    [line] = RunDirectory(tmp_path).read_metrics()
    assert line["time/reward_s"] == line["rewards/waiting/time_s"] > 0
    assert line["time/reward_wait_s"] >= 0


def uneven(samples: list[Sample]) -> list[float | None]:
    """Redness, less where it is small, and no score or a failure for some, by the sample alone."""
    found: list[float | None] = []
    for score in redness(samples):
        last = int(score * 1e6) % 10
        found.append(None if last == 0 else float("nan") if last == 1 else score)
    return found


def test_a_run_is_the_same_with_and_without_overlap(world: World, tmp_path: Path) -> None:
    rewards = [{"name": "uneven", "reward": uneven, "weight": 2.0}]
    rewards += [{"name": "shapes", "mode": "partial"}]
    task = {**GROUPS, "rewards": rewards, "max_failures": 0.9, "eval_prompts": world.held_out}
    changes = {"task": task, "eval_steps": 2, "max_steps": 2}
    for name, overlap in (("with", True), ("without", False)):
        train(run_config(world, tmp_path / name, overlap_rewards=overlap, **changes))
    lines = metrics(tmp_path / "with")
    assert lines == metrics(tmp_path / "without") and len(lines) == 4
    assert sum(line.get("rewards/uneven/failures", 0) for line in lines) > 0
    assert same_weights(tmp_path / "with" / "final", tmp_path / "without" / "final")
