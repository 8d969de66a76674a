"""Requests to a server of fewer workers than are wanted: fewer at a time, until all have scores."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mmrl.rewards import build_reward
from mmrl.rewards.http.window import Window
from mmrl.types import Sample
from tests.rewards.scripted_server import Answered, Asked, Scripted, scripted

SECONDS = 0.08
"""That the one worker takes for a request."""


@pytest.fixture
def worker() -> Iterator[Scripted]:
    """A server with one worker, which goes on with what nobody waits for any more."""
    one = threading.Lock()

    def answer(asked: Asked) -> Answered:
        content = json.loads(asked.body)
        with one:
            time.sleep(SECONDS)
        items = [{"id": item["id"], "score": 1.0, "error": None} for item in content["items"]]
        told = {"id": content["id"], "reward": content["reward"], "version": "1", "items": items}
        return Answered(json.dumps(told).encode())

    with scripted(answer) as server:
        yield server


def scores(server: Scripted, **changes: Any) -> list[float | None]:
    entry = {"name": "mine", "mode": "client", "url": server.url, "batch_size": 8, **changes}
    return build_reward(entry)([Sample(f"prompt {n}", "x") for n in range(64)])


@pytest.mark.slow
def test_requests_that_time_out_become_fewer_and_every_score_arrives(worker: Scripted) -> None:
    reward = {"concurrency": 8, "timeout_s": 2 * SECONDS, "deadline_s": 60.0}
    for _ in range(2):
        assert scores(worker, **reward) == [1.0] * 64
    assert len(worker.asked) < 60, "16 of them were needed"


@pytest.mark.slow
def test_clients_that_know_nothing_of_each_other_share_one_worker(worker: Scripted) -> None:
    changes = {"concurrency": 2, "timeout_s": 6 * SECONDS, "deadline_s": 100.0, "retries": 30}
    with ThreadPoolExecutor(16) as clients:
        found = list(clients.map(lambda _: scores(worker, **changes, batch_size=32), range(16)))
    assert found == [[1.0] * 64] * 16


def test_a_window_halves_once_for_all_that_were_under_way_and_grows_back_slowly() -> None:
    window = Window(8, 10.0)
    begun = time.monotonic()
    for _ in range(5):
        window.note_timeout(begun)
    assert window.size == 4
    for _ in range(4):
        window.note_answer(time.monotonic())
    assert 4.8 < window.size < 5
    assert all(window.enter(0.0) for _ in range(4)) and not window.enter(0.0)
    window.leave()
    assert window.enter(0.0)


def test_a_window_below_one_request_rests_between_them() -> None:
    window = Window(1, 10.0)
    assert window.note_timeout(time.monotonic() - 0.2) >= 0.1
    assert window.size == 0.5 and not window.enter(0.0)
    assert window.enter(1.0), "after the rest"
    window.leave()
    window.note_answer(time.monotonic())
    assert 0.7 < window.size < 0.71
    window.note_answer(time.monotonic())
    assert window.size == pytest.approx(1) and window.enter(0.1)
