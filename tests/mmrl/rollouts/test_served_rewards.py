"""Runs whose reward comes from servers: killed ones, and what a run does then."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from mmrl.rl import main
from mmrl.training.rl_progress import RLProgress
from tests.mmrl.runs import command_line, loadable, metrics
from tests.rewards.server.live import Live

SHAPES = "rewards=[{name: shapes, mode: partial, max_latency_ms: 1}]"


@contextmanager
def servers(folder: Path, number: int) -> Iterator[list[Live]]:
    """Servers of the shapes reward, loaded."""
    with ExitStack() as stack:
        started = []
        for n in range(number):
            (folder / f"server{n}").mkdir()
            started.append(stack.enter_context(Live(folder / f"server{n}", SHAPES)))
        for server in started:
            server.loaded()
        yield started


def client(started: Sequence[Live], **options: object) -> str:
    """The words that give a run its reward from servers."""
    urls = ", ".join(f"http://127.0.0.1:{server.port}" for server in started)
    told = "".join(f", {key}: {value}" for key, value in options.items())
    return f"tasks.shapes.rewards=[{{name: shapes, mode: client, url: [{urls}]{told}}}]"


def kill(*started: Live) -> None:
    for server in started:
        os.kill(server.process.pid, signal.SIGKILL)


def after_step(step: int, work: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something when a step is done."""
    original = RLProgress.record_step

    def record(self: RLProgress, *args: object) -> None:
        original(self, *args)  # type: ignore[arg-type]
        if self.trainer.step == step:
            work()  # type: ignore[operator]

    monkeypatch.setattr(RLProgress, "record_step", record)


@pytest.mark.slow
def test_without_any_server_the_run_stops_in_time_and_continues_when_one_is_back(
    world: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, killed = tmp_path / "run", []
    words = [*command_line(world, run), "max_steps=4", "save_steps=1"]
    with servers(tmp_path, 2) as started:

        def both() -> None:
            kill(*started)
            killed.append(time.monotonic())

        after_step(2, both, monkeypatch)
        assert main([*words, client(started, deadline_s=8)]) == 1
        assert time.monotonic() - killed[0] < 120, "with a step of rollouts in between"
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "reward 'shapes' failed on 8 of 8 samples" in message
    assert all(f"127.0.0.1:{server.port}" in message for server in started)
    assert loadable(run)[-1] == 2
    monkeypatch.undo()
    (tmp_path / "again").mkdir()
    with servers(tmp_path / "again", 1) as back:
        assert main([*words, client(back), "resume_from_checkpoint=auto"]) == 0
    assert [line["step"] for line in metrics(run)] == [1, 2, 3, 4]
