"""Traces of chosen steps of a run, as `profile/step_<n>.json.gz`, for Perfetto or chrome://tracing.

A traced step takes longer than the others, and its events are held in memory. Its trace also has
the evaluations and checkpoints between the step before and it.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch.profiler import ProfilerAction, profile, record_function

from mmrl.run.run_log import warn_of_failure
from mmrl.runtime.activity import activity, watch

logger = logging.getLogger(__name__)


@contextmanager
def trace_steps(folder: Path, steps: Sequence[int], begun: int) -> Iterator[profile]:
    """A profiler whose `step()` ends a step, and which writes traces of `steps`, counted from 1 as
    this command takes them, with the names of phases; the run has done `begun` before."""

    def schedule(done: int) -> ProfilerAction:
        return ProfilerAction.RECORD_AND_SAVE if done + 1 in steps else ProfilerAction.NONE

    def write(trace: profile) -> None:
        folder.mkdir(exist_ok=True)
        path = folder / f"step_{begun + trace.step_num:06d}.json.gz"
        advice = "Run some more steps with profile=true."
        with warn_of_failure("the profile", advice), activity("writing the trace"):
            trace.export_chrome_trace(str(path))
            logger.info("trace of step %d: %s", begun + trace.step_num, path)

    # without a GPU its library reports an error that is none
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with watch(record_function), profile(schedule=schedule, on_trace_ready=write) as trace:
        yield trace
