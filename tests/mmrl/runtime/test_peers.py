"""Processes of one run whose launcher or other process is killed."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.mmrl.runs import ACCELERATE, command_line, launcher, module_process, wait_for

pytestmark = pytest.mark.slow
WAYS = ["cpu2.yaml", "fsdp2_cpu2.yaml"]


@pytest.fixture
def launched(
    request: pytest.FixtureRequest, world: SimpleNamespace, tmp_path: Path
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


@pytest.mark.parametrize("launched", WAYS, indirect=True)
def test_ranks_end_when_their_launcher_is_killed(launched: SimpleNamespace) -> None:
    assert len(launched.ranks) == 2
    os.kill(launched.launcher.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(launched.ranks, timeout=20)
    assert len(gone) == 2 and not alive


@pytest.mark.parametrize("launched", [*WAYS, "zero3_cpu2.yaml"], indirect=True)
def test_a_rank_whose_peer_is_killed_says_so_in_a_line(launched: SimpleNamespace) -> None:
    [victim] = [each for each in launched.ranks if each.environ()["LOCAL_RANK"] == "1"]
    # the launcher notices as well, and ends the other rank: whichever is first, so it has to wait
    os.kill(launched.launcher.pid, signal.SIGSTOP)
    victim.kill()
    begun = time.monotonic()
    while "error: " not in launched.said.read_text() and time.monotonic() - begun < 55:
        time.sleep(0.1)
    os.kill(launched.launcher.pid, signal.SIGCONT)
    psutil.wait_procs(launched.ranks, timeout=30)
    assert launched.launcher.wait(timeout=30) != 0
    said = launched.said.read_text()
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert lines and "another process of the run has ended" in lines[0], said[-3000:]
    assert f"rank 1 has ended: process {victim.pid} is gone" in lines[0], said[-3000:]
    assert "resume_from_checkpoint=auto" in lines[0]
