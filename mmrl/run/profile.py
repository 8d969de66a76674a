"""Traces of chosen steps of a run, as `profile/step_<n>.json.gz`, for Perfetto or chrome://tracing.

The first process writes them. A trace begins with the first phase of its step and ends before the
evaluations and checkpoints that follow; the step takes longer than the others, and its events are
held in memory.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch.profiler

from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import activity, watch

logger = logging.getLogger(__name__)
FIRST_PHASES = ("rollouts", "update")
"""Activities with which a step begins, of `mmrl.rl` and `mmrl.sft`."""


class RunProfile:
    """Traces steps.

    Args:
        run: its directory.
        steps: that are traced, counted from 1 as this command takes them.
    """

    def __init__(self, run: RunDirectory, steps: Sequence[int]) -> None:
        self.folder, self.steps = run.path / "profile", set(steps if run.is_main else ())
        self.trace: torch.profiler.profile | None = None
        self.step = 1

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Name the phases inside the context in traces; drop that of a step that does not end."""
        if not self.steps:
            yield
            return
        with watch(self._enter):
            yield
        if self.trace is not None:
            self.trace.stop()

    @contextmanager
    def _enter(self, name: str) -> Iterator[None]:
        if name in FIRST_PHASES and self.trace is None and self.step in self.steps:
            # without a GPU its library reports an error that is none
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")
            self.trace = torch.profiler.profile()
            self.trace.start()
        with torch.profiler.record_function(name):
            yield

    def end_step(self, step: int) -> None:
        """Write the trace of the step, if there is one, by its number in the run."""
        self.step += 1
        trace, self.trace = self.trace, None
        if trace is not None:
            self.folder.mkdir(exist_ok=True)
            path = self.folder / f"step_{step:06d}.json.gz"
            with activity("writing the trace"):
                trace.stop()
                trace.export_chrome_trace(str(path))
            logger.info("trace of step %d: %s", step, path)
