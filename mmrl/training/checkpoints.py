"""The checkpoints of a run: written while training goes on, and which of them are kept."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from accelerate import Accelerator

from mmrl.run.checkpoint import (
    CheckpointError,
    checkpoint_steps,
    prune_checkpoints,
    write_directory,
)
from mmrl.run.run_directory import RunDirectory
from mmrl.run_config import RunConfig
from mmrl.runtime.activity import activity
from mmrl.runtime.launch import any_process

logger = logging.getLogger(__name__)


class Checkpoints:
    """Writes and removes the checkpoints of a run. With `async_save` the state is copied to the CPU
    of the main process, gathered from shards where it is sharded, and a thread of that process
    writes it; the next checkpoint waits for the last.

    `step` is that of the last one of this run that was begun, or resumed from, -1 without; `best`
    that whose checkpoint is kept beside the last ones, -1 for none."""

    def __init__(self, run: RunDirectory, config: RunConfig, accelerator: Accelerator) -> None:
        self.run, self.config, self.accelerator = run, config, accelerator
        self.step, self.best = 0, -1
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def resume(self, step: int) -> None:
        """Begin at a step; remove later checkpoints and what interrupted writes have left. All
        processes call this."""
        kept = list[int]()
        if self.run.is_main:
            prune_checkpoints(self.run.checkpoints, step)
            kept = checkpoint_steps(self.run.checkpoints)
        self.step = step if any_process(step in (0, *kept)) else -1

    def write(self, step: int, save: Callable[[Path], None]) -> None:
        """Write a checkpoint of a step by `save`, which fills the directory it is given, and remove
        those beyond `save_total_limit`; all processes call this. Raises CheckpointError: this one,
        or the last one in the background, could not be written."""
        self.finish_saving()
        self.step, target = step, self.run.checkpoints / str(step)

        def complete(work: Callable[[], None]) -> None:
            work()
            prune_checkpoints(self.run.checkpoints, step, self.config.save_total_limit, self.best)

        def begin(work: Callable[[], None]) -> None:
            self._writing = self._writer.submit(complete, work)

        background = begin if self.config.async_save else None
        with activity(f"writing {target}"):
            barrier = self.accelerator.wait_for_everyone
            write_directory(target, save, self.run.is_main, barrier, background)
        if background is None and self.run.is_main:
            complete(lambda: None)

    @property
    def failed(self) -> bool:
        """Whether the writing of the last checkpoint has failed, on this process."""
        writing = self._writing
        return writing is not None and writing.done() and writing.exception() is not None

    def finish_saving(self) -> None:
        """Wait until the last checkpoint is complete; all processes call this. Raises
        CheckpointError: it could not be written, on any process."""
        if self._writing is not None and not self._writing.done():
            with activity(f"writing checkpoint {self.step}"):
                wait([self._writing])
        self.raise_failure(any_process(self.failed))

    def raise_failure(self, anywhere: bool) -> None:
        """Raise the error of the background, if it has failed on any process."""
        if self.failed and self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()
        if anywhere:
            raise CheckpointError("another process could not write a checkpoint; its log says why")

    def close(self) -> None:
        """Wait for what is being written where the run ends, and log its error."""
        self._writer.shutdown()
        if self.failed and self._writing is not None:
            logger.error("%s", self._writing.exception())
