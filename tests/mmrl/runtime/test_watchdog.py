"""Runs in which a process hangs or is lost end with what is known of it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from mmrl.runtime import heartbeats as beats
from mmrl.runtime import watchdog as dog
from mmrl.runtime.activity import Display, activity, advance
from mmrl.runtime.heartbeats import Heartbeat, Heartbeats
from mmrl.runtime.thread_calls import describe_calls, read_stacks
from mmrl.runtime.watchdog import Watchdog, describe_stall
from tests.mmrl.runs import ACCELERATE, command_line, launcher, module_process

HANGING = "tasks.shapes.rewards=[{name: tests/mmrl/hanging_reward.py:HangingReward}]"


@pytest.fixture
def stores() -> Iterator[list[dist.Store]]:
    """Connections of two processes to one store."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5))
    yield [dist.PrefixStore("run", server.clone()) for _ in range(2)]


def hear(one: Heartbeats, wanted: Callable[[Heartbeat], bool]) -> Heartbeat:
    """What a process hears of the other; the store answers a sender before it has stored."""
    for _ in range(200):
        heard = one.receive()
        if heard and wanted(heard[1]):
            return heard[1]
        time.sleep(0.01)
    raise AssertionError(heard)


def test_processes_hear_each_others_phase_and_age(stores: list[dist.Store]) -> None:
    one, other = (Heartbeats(store, rank, 2) for rank, store in enumerate(stores))
    one.send(Heartbeat(3.0, "step 1/2", "call"))
    assert one.receive() == {}, "the other has not begun"
    other.send(Heartbeat(5.0, "step 0/2", "sleep (x.py:1)", waits=True))
    first = hear(one, lambda heard: True)
    time.sleep(0.05)
    later = one.receive()[1]
    assert (first.phase, first.waits, first.ended) == ("step 0/2", True, "")
    assert first.pid == os.getpid() and later.idle > first.idle + 0.04


def test_a_process_that_is_gone_has_ended(
    stores: list[dist.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Heartbeats(store, rank, 2) for rank, store in enumerate(stores))
    child = subprocess.Popen(["true"])
    child.wait()
    one.send(Heartbeat(0.0, "", ""))
    other.place["pid"] = child.pid
    other.send(Heartbeat(0.0, "update", ""))
    assert hear(one, lambda heard: f"process {child.pid} is gone" in heard.ended)
    other.place["host"] = "elsewhere"
    other.send(Heartbeat(0.0, "update", ""))
    assert hear(one, lambda heard: heard.host == "elsewhere" and not heard.ended)
    monkeypatch.setattr(beats, "SILENCE", 0.01)
    assert hear(one, lambda heard: "no heartbeat from elsewhere" in heard.ended)


SERVER = """
import time, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def server() -> Iterator[SimpleNamespace]:
    """A process that serves a store, as a launcher does: `process`, and `connect` to it."""
    command = [sys.executable, "-c", SERVER]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        connect = partial(dist.TCPStore, "127.0.0.1", port, is_master=False, wait_for_workers=False)
        yield SimpleNamespace(process=process, connect=connect)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_process_that_is_gone_is_known_though_the_store_does_not_answer(
    server: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Heartbeats(server.connect(), rank, 2) for rank in (0, 1))
    watchdog = Watchdog(100, one)
    monkeypatch.setattr(beats, "TIMEOUT", 0.5)
    peer = subprocess.Popen(["sleep", "60"])
    other.place["pid"] = peer.pid
    one.send(Heartbeat(0.0, "", ""))
    other.send(Heartbeat(0.0, "update", ""))
    hear(one, lambda heard: True)
    watchdog.others = one.receive()
    server.process.send_signal(signal.SIGSTOP)
    for most in (5.0, 0.4):  # the second is refused while the first waits
        begun = time.monotonic()
        with pytest.raises(RuntimeError, match="no answer within 0.5 s"):
            one.receive()
        assert time.monotonic() - begun < most
    watchdog.find_lost()
    assert not watchdog.lost
    peer.kill()
    peer.wait()
    watchdog.find_lost()
    assert f"rank 1 has ended: process {peer.pid} is gone" in watchdog.lost
    server.process.send_signal(signal.SIGCONT)
    assert one.asked is not None and one.asked.result(timeout=20)
    assert hear(one, lambda heard: "is gone" in heard.ended)


def test_the_first_verdict_is_that_of_all(stores: list[dist.Store]) -> None:
    one, other = (Heartbeats(store, rank, 2) for rank, store in enumerate(stores))
    assert one.verdict() == ""
    assert one.agree("mine") == "mine"
    assert other.agree("yours") == other.verdict() == "mine"


def test_who_hangs_is_who_does_not_wait_in_a_collective() -> None:
    hangs = Heartbeat(61.0, "step 3/9, waiting for rewards", "sleep (mine.py:4)")
    waits = Heartbeat(60.0, "step 3/9, update", "gather (x.py:1)", waits=True)
    said = describe_stall({0: waits, 1: hangs}, 60)
    assert said.startswith(
        "rank 1 has made no progress for 61 s in 'step 3/9, waiting for rewards', at sleep"
        " (mine.py:4). rank 0 waits for it in 'step 3/9, update'"
    )
    assert "ddp_timeout=60 seconds" in said and "resume_from_checkpoint=auto" in said
    both = describe_stall({0: waits, 1: waits}, 60)
    assert "rank 0 has made no progress" in both and "rank 1 has made no progress" in both


def test_the_call_of_the_main_thread_and_those_of_rewards_are_named() -> None:
    done = threading.Event()

    def hang() -> None:
        done.wait()

    worker = threading.Thread(target=hang, name="reward slow", daemon=True)
    worker.start()
    calls, waits = describe_calls(threading.get_ident())
    done.set()
    assert "read_stacks (mmrl/runtime/thread_calls.py" in calls and not waits
    assert "thread 'reward slow': wait (" in calls
    assert "called by hang (tests/mmrl/runtime/test_watchdog.py" in calls


def test_the_calls_of_a_thread_that_goes_on_running_are_read() -> None:
    done = threading.Event()

    def recurse(depth: int) -> int:
        return 0 if depth == 0 else 1 + recurse(depth - 1)

    def run() -> None:
        while not done.is_set():
            recurse(30)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    found = [read_stacks().get(worker.ident or 0, []) for _ in range(200)]
    done.set()
    assert {"run", "recurse"} <= {call.name for calls in found for call in calls}
    assert all(calls[0].name.endswith("_bootstrap") for calls in found if calls)


def test_threads_that_only_begin_or_end_have_no_calls_and_are_left_out() -> None:
    done = threading.Event()

    def begin_threads() -> None:
        while not done.is_set():
            for worker in [threading.Thread(target=time.sleep, args=(1e-4,)) for _ in range(20)]:
                worker.start()

    makers = [threading.Thread(target=begin_threads, daemon=True) for _ in range(3)]
    for maker in makers:
        maker.start()
    found = [read_stacks() for _ in range(500)]
    done.set()
    assert all(calls for stacks in found for calls in stacks.values())
    assert len({thread for stacks in found for thread in stacks}) > len(makers) + 1


def test_progress_of_any_phase_counts_and_loading_is_not_timed() -> None:
    with Display(shown=False) as display, activity("step", 4), activity("rollouts", 8):
        time.sleep(0.03)
        assert display.idle > 0.02
        advance()
        assert display.idle < 0.02
        with activity("loading", timed=False):
            time.sleep(0.03)
            assert display.idle == 0
        assert display.idle < 0.02


def test_the_calls_are_read_only_where_there_is_no_progress_or_another_process_is_lost() -> None:
    with Display(shown=False), activity("rollouts", 8):
        watchdog = Watchdog(60.0, None)
        assert watchdog.observe().calls == ""
        watchdog.lost = "rank 1 has ended"
        assert "read_stacks (mmrl/" in watchdog.observe().calls
        watchdog.lost, watchdog.limit = "", 0.02
        time.sleep(0.02)
        assert "read_stacks (mmrl/" in watchdog.observe().calls


@pytest.mark.parametrize("moving", [True, False])
def test_a_run_ends_only_where_it_makes_no_progress(
    moving: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(dog, "end_at_once", ended.append)
    with Display(shown=False), activity("rollouts", 8):
        watchdog = Watchdog(0.1, None)
        watchdog.start()
        for _ in range(15):
            time.sleep(0.02)
            if moving:
                advance()
        watchdog.close(None)
    assert bool(ended) is not moving and set(ended) <= {1}
    said = capfd.readouterr().err
    assert ("rank 0 has made no progress" in said and "'rollouts 0/8" in said) is not moving


@pytest.mark.slow
def test_a_reward_that_hangs_ends_all_processes_with_its_place(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    words = [*command_line(world, tmp_path / "run"), HANGING, "max_steps=4", "ddp_timeout=12"]
    running = module_process("mmrl.rl", words, *launcher(ACCELERATE / "cpu2.yaml"))
    out, said = running.communicate(timeout=120)
    text = said.decode()
    assert running.returncode != 0
    [first, *_] = [line for line in text.splitlines() if line.startswith("error: ")]
    assert first.startswith("error: rank 1 has made no progress for 1"), text[-3000:]
    assert "waiting for rewards" in first and "rank 0 waits for it in" in first
    assert "__call__ (tests/mmrl/hanging_reward.py:" in first
    assert "thread 'reward tests/mmrl/hanging" in first or "HangingReward" in first
    assert "has made no progress" in (tmp_path / "run" / "train.log").read_text()
