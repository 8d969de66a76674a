"""Runs in which a process hangs or is lost end with what is known of it."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from mmrl.runtime import activity as shown
from mmrl.runtime.activity import Display, activity, advance, end_when_idle
from tests.mmrl.runs import ACCELERATE, World, command_line, launcher, module_process, wait_for

HANGING = "tasks.shapes.rewards=[{name: tests/mmrl/failing_rewards.py:HangingReward}]"


def test_progress_of_any_phase_counts_and_loading_is_not_timed() -> None:
    with Display() as display, activity("step", 4), activity("rollouts", 8):
        time.sleep(0.03)
        assert display.idle > 0.02
        advance()
        assert display.idle < 0.02
        with activity("loading", timed=False):
            time.sleep(0.03)
            assert display.idle == 0
        assert display.idle < 0.02


@pytest.mark.parametrize("moving", [True, False])
def test_a_run_ends_only_where_it_makes_no_progress(
    moving: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(shown, "end_at_once", ended.append)
    monkeypatch.setattr(shown, "REFRESH", 0.05)
    with Display(), activity("rollouts", 8):
        end_when_idle(0.2)
        for _ in range(20):
            time.sleep(0.02)
            if moving:
                advance()
    assert ended == ([] if moving else [1])
    said = capfd.readouterr().err
    if not moving:
        line, _, calls = said.partition("error: ")[2].partition("\n")
        assert line.startswith("rank 0 has made no progress for 0 s in 'rollouts 0/8'; its calls")
        assert "ddp_timeout" in line and "resume_from_checkpoint=auto" in line
        assert calls.count("most recent call first") >= 2, "of all threads"


@pytest.mark.slow
def test_a_reward_that_hangs_ends_all_processes_with_its_name(world: World, tmp_path: Path) -> None:
    words = [*command_line(world, tmp_path / "run"), HANGING, "max_steps=4", "ddp_timeout=12"]
    running = module_process("mmrl.rl", words, *launcher(ACCELERATE / "cpu2.yaml"))
    _, said = running.communicate(timeout=120)
    text = said.decode()
    assert running.returncode != 0
    [first, *_] = [line for line in text.splitlines() if line.startswith("error: ")]
    assert re.match(r"error: reward \S*HangingReward has not returned for 1\d s", first), text
    assert re.search(r"rank +: 1 \(local_rank: 1\)\s+exitcode +: 1", text), text[-3000:]


@pytest.fixture
def launched(
    request: pytest.FixtureRequest, world: World, tmp_path: Path
) -> Iterator[SimpleNamespace]:
    """A launched run of two processes in the middle of its steps: `launcher`, `ranks`, `said`."""
    said = tmp_path / "said.txt"
    words = [*command_line(world, tmp_path / "run"), "max_steps=100000", "save_steps=1"]
    settings = launcher(ACCELERATE / request.param)
    with said.open("w") as out:
        running = module_process("mmrl.rl", words, *settings, stderr=out, stdout=out)
        family: list[psutil.Process] = []
        try:
            wait_for(tmp_path / "run" / "checkpoints" / "2", running)
            family = psutil.Process(running.pid).children(recursive=True)
            ranks = [each for each in family if "LOCAL_RANK" in each.environ()]
            yield SimpleNamespace(launcher=running, ranks=ranks, said=said)
        finally:
            for each in (*family, running):
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
            running.wait()


@pytest.mark.slow
@pytest.mark.parametrize("launched", ["cpu2.yaml"], indirect=True)
def test_ranks_end_when_their_launcher_is_killed(launched: SimpleNamespace) -> None:
    assert len(launched.ranks) == 2
    os.kill(launched.launcher.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(launched.ranks, timeout=20)
    assert len(gone) == 2 and not alive


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launched", "rank"), [("cpu2.yaml", "0"), ("zero3_cpu2.yaml", "1")], indirect=["launched"]
)
def test_a_killed_rank_ends_the_others_and_is_named(launched: SimpleNamespace, rank: str) -> None:
    [victim] = [each for each in launched.ranks if each.environ()["LOCAL_RANK"] == rank]
    victim.kill()
    _, alive = psutil.wait_procs(launched.ranks, timeout=60)
    assert not alive
    assert launched.launcher.wait(timeout=30) != 0
    said = launched.said.read_text()
    killed = rf"rank +: {rank} \(local_rank: {rank}\)\s+exitcode +: -9 \(pid: {victim.pid}\)"
    assert re.search(killed, said), said[-3000:]
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert lines and "another process of the run has ended" in lines[0], said[-3000:]
    assert "resume_from_checkpoint=auto" in lines[0]
