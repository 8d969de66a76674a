"""Traces of chosen steps of a run, as `profile/step_<n>.json.gz`, for Perfetto or chrome://tracing.

The first process writes them. A trace begins with the first phase of its step and ends before the
evaluations and checkpoints that follow; the step takes longer than the others, and its events are
held in memory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch.profiler

from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import activity, watch

logger = logging.getLogger(__name__)

FIRST_PHASES = ("rollouts", "update")
"""Activities with which a step begins, of `mmrl.rl` and `mmrl.sft`."""


class RunProfile:
    """Traces steps between `start` and `close`.

    Args:
        run: its directory.
        steps: that are traced, counted from 1 as this command takes them.
    """

    def __init__(self, run: RunDirectory, steps: Sequence[int]) -> None:
        self.folder, self.steps = run.path / "profile", set(steps if run.is_main else ())
        self.trace: torch.profiler.profile | None = None
        self.step, self._listening = 1, ExitStack()

    def start(self) -> None:
        """Listen to the phases of the run, where steps are traced."""
        if self.steps:
            self._listening.enter_context(watch(self._enter))

    @contextmanager
    def _enter(self, name: str) -> Iterator[None]:
        """Name a phase in the trace, which the first one of a step starts."""
        if name in FIRST_PHASES and self.trace is None and self.step in self.steps:
            # without a GPU its library reports an error that is none
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")
            self.trace = torch.profiler.profile()
            self.trace.start()
        with torch.profiler.record_function(name):
            yield

    def end_step(self, step: int) -> None:
        """Write the trace of a step, if there is one.

        Args:
            step: its number in the run.
        """
        self.step += 1
        trace, self.trace = self.trace, None
        if trace is not None:
            path = self.folder / f"step_{step:06d}.json.gz"
            path.parent.mkdir(exist_ok=True)
            with activity("writing the trace"):
                trace.stop()
                trace.export_chrome_trace(str(path))
            logger.info("trace of step %d: %s", step, path)

    def close(self) -> None:
        """Drop the trace of a step that was not finished."""
        self._listening.close()
        if self.trace is not None:
            self.trace.stop()
