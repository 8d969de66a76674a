"""Work in threads: in order, some at a time, broken off at once, never in the way of the end."""

import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import mmrl.rewards.http.together
from mmrl.rewards.http.together import together
from mmrl.rewards.scoring.overlap import Overlap
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Sample
from tests.rewards.scripted_server import Answered, scripted

ENDS = """
import _thread, runpy, sys, threading, time
together = runpy.run_path(sys.argv[1])["together"]
threading.Timer(0.3, _thread.interrupt_main).start()
together(lambda _: time.sleep(45), range(20), 8)
"""


def test_results_come_in_order_and_no_more_are_under_way_than_allowed() -> None:
    under_way, most, lock = 0, 0, threading.Lock()

    def work(n: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.002 * (n % 3))
        with lock:
            under_way -= 1
        return n * n

    assert together(work, range(50), 4) == [n * n for n in range(50)]
    assert 1 < most <= 4
    assert together(work, [], 4) == []


def test_what_is_raised_reaches_who_waits_and_nothing_else_is_begun() -> None:
    begun: list[int] = []

    def work(n: int) -> int:
        begun.append(n)
        if n == 2:
            raise LookupError("two")
        time.sleep(0.05)
        return n

    with pytest.raises(LookupError, match="two"):
        together(work, range(1000), 2)
    assert len(begun) < 100


def test_ctrl_c_ends_the_process_at_once_whatever_is_under_way() -> None:
    started = time.monotonic()
    # by its path: what the package imports would take most of the time
    command = [sys.executable, "-c", ENDS, str(mmrl.rewards.http.together.__file__)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "KeyboardInterrupt" in ended.stderr
    assert time.monotonic() - started < 30


def test_a_run_that_ends_stops_the_requests_of_its_served_rewards() -> None:
    asked = threading.Event()

    def answer(_: Any) -> Answered:
        asked.set()
        return Answered(b"", 429, {"Retry-After": "1"})

    with scripted(answer) as server:
        entry = {"name": "mine", "mode": "client", "url": server.url, "deadline_s": 60.0}
        scorer = Scorer([entry])
        with Overlap([scorer]):
            scorer.begin(3).add([Sample("p", "x")] * 3)
            assert asked.wait(20)
            started = time.monotonic()
    assert time.monotonic() - started < 10
