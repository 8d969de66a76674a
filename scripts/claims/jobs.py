"""Commands in processes of their own, one thread each, several at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from mmrl.runtime.activity import Display, activity, write


@dataclass(frozen=True)
class Job:
    """A command of this project.

    Attributes:
        label: what it is called where progress is shown.
        words: of the command line, after `python -m`.
        folder: where it writes.
        total: its steps.
        progress: how many of them are done.
        finish: called with the exit status when it has ended well.
        accepted: exit statuses that are no failure.
    """

    label: str
    words: Sequence[str]
    folder: Path
    total: int = 1
    progress: Callable[[], int] = lambda: 0
    finish: Callable[[int], None] = lambda status: None
    accepted: tuple[int, ...] = (0,)


def execute_all(jobs: Sequence[Job], workers: int) -> None:
    """Run jobs, so many at a time; the first failure starts no further ones.

    Meanwhile the steps of all of them are shown, how long they will take, and where those that are
    running stand.

    Raises:
        RuntimeError: a process failed; with the end of what it said.
    """
    if not jobs:
        return
    write(f"{len(jobs)} to do, {workers} at a time")
    running: dict[str, tuple[Job, float]] = {}
    finished: set[str] = set()
    total, before = sum(job.total for job in jobs), sum(job.progress() for job in jobs)
    with Display(), activity("step", total, before) as steps, ThreadPoolExecutor(workers) as pool:
        pending: dict[Future[int], Job] = {pool.submit(_execute, job, running): job for job in jobs}
        try:
            while pending:
                done, _ = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for future in done:
                    job = pending.pop(future)
                    job.finish(future.result())
                    finished.add(job.label)
                steps.done = sum(
                    job.total if job.label in finished else job.progress() for job in jobs
                )
                steps.remark = ", ".join(_progress(*one) for one in list(running.values()))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _execute(job: Job, running: dict[str, tuple[Job, float]]) -> int:
    """Run a job; it is among those that are running, with its start."""
    job.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", *job.words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    write(f"started: {job.label}")
    started = time.monotonic()
    running[job.label] = job, started
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    finally:
        del running[job.label]
    if done.returncode not in job.accepted:
        said = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}:\n{said}")
    write(f"finished: {job.label}, in {tqdm.format_interval(time.monotonic() - started)}")
    return done.returncode


def _progress(job: Job, started: float) -> str:
    return f"{job.label} {job.progress()}/{job.total} {time.monotonic() - started:.0f}s"
