"""What a run shows and keeps: metrics, progress bar, evaluations, checkpoints, report."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import gather_object

from mmrl.run.checkpoint import ASIDE, write_directory
from mmrl.run.hub_upload import upload
from mmrl.run.model_card import write_card
from mmrl.run.profile import trace_steps
from mmrl.run.report import write_report
from mmrl.run.run_directory import RunDirectory
from mmrl.run.run_log import warn_of_failure
from mmrl.runtime.activity import activity
from mmrl.runtime.interrupt import take_save_request
from mmrl.runtime.launch import any_process
from mmrl.training.checkpoints import Checkpoints
from mmrl.training.trackers import start_trackers

if TYPE_CHECKING:
    from typing_extensions import Self

    from mmrl.training.supervised_trainer import SupervisedTrainer
    from mmrl.training.trainers import Trainers

logger = logging.getLogger(__name__)


class Progress:
    """Steps of one run in its directory, by its trainer; a context manager that counts them and
    opens the trackers. `evaluate` returns the lines of metrics of an evaluation of the present
    weights; `at_ends`: whether the first and the last step are evaluated too, where any is.
    `stopped` is why the run ends before `max_steps`; empty where it does not."""

    def __init__(
        self,
        run: RunDirectory,
        trainer: SupervisedTrainer | Trainers,
        evaluate: Callable[[], Iterable[Mapping[str, float]]],
        at_ends: bool = False,
    ) -> None:
        self.run, self.trainer = run, trainer
        self.config: Any = trainer.settings
        self.accelerator = trainer.accelerator
        self.evaluate, self.at_ends, self.stopped = evaluate, at_ends, ""
        self.checkpoints = Checkpoints(run, self.config, self.accelerator)

    def __enter__(self) -> Self:
        self.begun, self._open, self._trace = self.trainer.step, ExitStack(), None
        self.run.write_settings()
        # a run that starts anew keeps no line, not even of the evaluation before its first step
        self.run.keep_until(self.begun or -1)
        self.checkpoints.resume(self.begun)
        lines = self.run.read_metrics() if self.run.is_main else []
        # lines of training steps have a learning rate, those of an evaluation have none
        here = [line for line in lines if line["step"] == self.begun]
        evaluated = any_process(any("learning_rate" not in line for line in here))
        self.evaluated = self.begun if evaluated else -1
        if self.config.report_to:
            start_trackers(self.accelerator, self.run.path, self.config, resumed=self.begun > 0)
        self._open.callback(self._finish_trackers)
        steps = activity("step", self.config.max_steps, self.begun)
        self.steps = self._open.enter_context(steps)
        if self.config.profile and self.run.is_main:
            traced = trace_steps(self.run.path / "profile", self.config.profile_steps, self.begun)
            self._trace = self._open.enter_context(traced)
        self._open.callback(self.checkpoints.close)
        self.clock = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _finish_trackers(self) -> None:
        again = f"All metrics are in '{self.run.metrics}': log them again from there."
        for tracker in self.accelerator.trackers:
            with warn_of_failure(f"the end of {tracker.name}", again):
                tracker.finish()

    @property
    def done(self) -> bool:
        """Whether no step is left."""
        return bool(self.stopped) or self.trainer.step >= self.config.max_steps

    def record(self, remark: str) -> None:
        """Move the bar, with a remark, after a step; write a line of metrics when due, and after
        the last step."""
        self.steps.reach(self.trainer.step)
        self.steps.remark = remark
        if self._trace is not None:
            self._trace.step()
        if self._is_due(self.config.logging_steps) or self.trainer.step == self.config.max_steps:
            self._log(self.trainer.take_metrics())

    def evaluate_when_due(self) -> None:
        """Evaluate every `eval_steps`, and at the ends where that is wanted. Raises Interrupted: a
        stop is requested on any process; nothing of it is kept."""
        if self._is_evaluation_due():
            lines = [*self.evaluate()]
            self.evaluated = self.trainer.step
            for line in lines:
                self._log(line)
            if self.trainer.step == self.begun:  # this is no part of the first step's time
                self.clock, self.steps.started = time.perf_counter(), time.monotonic()

    def checkpoint_when_due(self) -> None:
        """Write a checkpoint every `save_steps`, and after SIGUSR1 on any process. Raises
        CheckpointError: the last one could not be written in the background."""
        if asked := take_save_request():
            logger.info("SIGUSR1: a checkpoint is written after this step, and the run goes on")
        wishes = gather_object([(asked, self.checkpoints.failed)])
        self.checkpoints.raise_failure(any(failed for _, failed in wishes))
        if self._is_due(self.config.save_steps) or any(save for save, _ in wishes):
            self.write_checkpoint()

    def finish(self) -> bool:
        """Write the final model, or the checkpoint of a run that was stopped, and the report;
        return whether the run reached its last step and evaluated it where that is due."""
        step = self.trainer.step
        finished = self.done and not self._is_evaluation_due()
        if not finished and self.checkpoints.step != step:
            self.write_checkpoint()
        self.checkpoints.finish_saving()
        if finished:
            with activity(f"writing {self.run.final}"):
                wait = self.accelerator.wait_for_everyone
                save = partial(self._save_with_card, self.trainer.save_model)
                write_directory(self.run.final, save, self.run.is_main, wait)
            logger.info("finished; the model is in %s", self.run.final)
        else:
            logger.info("stopped at step %d; resume_from_checkpoint=auto continues", step)
        if self.run.is_main:
            self._report()
            if finished and self.config.push_to_hub:
                repository = self.config.hub_model_id or self.run.path.resolve().name
                card = partial(self._write_cards, self.run.final)
                upload(self.run.final, repository, self.config.hub_private_repo, "model", card)
        return finished

    def write_checkpoint(self) -> None:
        """Write a checkpoint of this step, and remove those beyond `save_total_limit`."""
        self.checkpoints.write(self.trainer.step, partial(self._save_with_card, self.trainer.save))

    def _save_with_card(self, save: Callable[[Path], None], folder: Path) -> None:
        save(folder)
        # a folder is written under another name, see `write_directory`
        self._write_cards(folder, folder.with_name(folder.name.removesuffix(ASIDE)))

    def _write_cards(self, folder: Path, place: str | Path) -> None:
        again = "The same command with resume_from_checkpoint=auto writes final/ with its card."
        with warn_of_failure(f"the model card of '{folder}'", again):
            if self.run.is_main:
                lines = self.run.read_metrics()
                for name, own in getattr(self.config, "runs", {"": self.config}).items():
                    write_card(folder / name, own, lines, self.trainer.step, place, name)

    def _report(self) -> None:
        call = f"from mmrl.run.report import write_report as w; w({str(self.run.path)!r})"
        again = f"Correct that and write it: {shlex.join(['python', '-c', call])}"
        with warn_of_failure("the report", again), activity("writing the report"):
            logger.info("report: %s", write_report(self.run.path))

    def _log(self, values: Mapping[str, float]) -> None:
        self.run.append(self.trainer.step, values)
        if self.config.report_to:
            self.accelerator.log(dict(values), step=self.trainer.step)

    def _is_due(self, every: int) -> bool:
        return every > 0 and self.trainer.step % every == 0

    def _is_evaluation_due(self) -> bool:
        step, every = self.trainer.step, self.config.eval_steps
        ends = self.at_ends and step in (0, self.config.max_steps)
        return every > 0 and (ends or step > 0 and self._is_due(every)) and step != self.evaluated
