"""Profile of a run: seconds by phase, and a trace of chosen steps for chrome://tracing or Perfetto.

profile/phases.txt, phases.json    every phase of this command: calls, seconds, share
profile/step_<n>.json.gz           what the processor and the device did in a step

The first process writes both. A trace begins with the first phase of its step and ends before the
evaluations and checkpoints that follow; the step takes longer than the others, and its events are
held in memory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, supported_activities

from mmrl.run.phase_times import PhaseTimes
from mmrl.runtime.activity import activity, watch

if TYPE_CHECKING:
    from mmrl.run.run_directory import RunDirectory

logger = logging.getLogger(__name__)

STEP = ("rollouts", "update")
"""Activities with which a step begins, of `mmrl.rl` and `mmrl.sft`."""


@contextmanager
def profile_run(
    run: RunDirectory, steps: list[int] | None, device: torch.device
) -> Iterator[RunProfile | None]:
    """Profile a run inside the context; None where this process does not.

    Args:
        run: its directory.
        steps: that are traced, counted from 1; None for no profile.
        device: of this process.
    """
    if steps is None or not run.is_main:
        yield None
        return
    profiled = RunProfile(run, steps, device)
    with watch(profiled.enter):
        try:
            yield profiled
        finally:
            profiled.close()


class RunProfile:
    """The profile of a run; arguments as for `profile_run`."""

    def __init__(self, run: RunDirectory, steps: list[int], device: torch.device) -> None:
        self.folder, self.steps = run.path / "profile", set(steps)
        self.folder.mkdir(exist_ok=True)
        if device.type == "cpu":
            self.measured, self.times = {ProfilerActivity.CPU}, PhaseTimes()
        else:
            self.measured = supported_activities()
            self.times = PhaseTimes(torch.accelerator.synchronize)
        self.trace: profile | None = None
        self.step = 1

    @contextmanager
    def enter(self, name: str) -> Iterator[None]:
        """Measure an activity, and name it in the trace, which the first one of a step starts."""
        if name in STEP and self.times.open is None and self.step in self.steps:
            self._start()
        label: AbstractContextManager[Any] = nullcontext()
        if self.trace is not None:
            label = record_function(name)
        with self.times.measure(name), label:
            yield

    def end_step(self, step: int) -> None:
        """Write the table, and the trace if there is one, after a step.

        Args:
            step: its number in the run.
        """
        if self.trace is not None:
            path = self.folder / f"step_{step:06d}.json.gz"
            trace, self.trace = self.trace, None
            with activity("writing the trace"):
                trace.stop()
                trace.export_chrome_trace(str(path))
            logger.info("trace of step %d: %s", step, path)
        self.step += 1
        self.times.write(self.folder)

    def close(self) -> None:
        """Write the table; drop the trace of a step that was not finished."""
        if self.trace is not None:
            self.trace.stop()
        self.times.write(self.folder)
        logger.info("seconds by phase: %s", self.folder / "phases.txt")

    def _start(self) -> None:
        if self.trace is None:
            # without a GPU its library reports an error that is none
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")
            self.trace = profile(activities=self.measured)
            self.trace.start()
