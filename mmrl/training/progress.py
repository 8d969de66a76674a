"""What a run shows and keeps: metrics, progress bar, evaluations, samples, checkpoints, report."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eval.evaluation import Evaluation, evaluate, gather_evaluation, local_share
from eval.results import write_grid
from mmrl.config import to_plain
from mmrl.data.prompts import spread
from mmrl.rollouts.tasks import Task
from mmrl.run.checkpoint import prune_checkpoints, write_directory
from mmrl.run.report import write_report
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import activity
from mmrl.runtime.interrupt import leaving_together
from mmrl.runtime.launch import any_process
from mmrl.training.completions import write_completions
from mmrl.training.reward_versions import write_versions
from mmrl.training.trackers import log_samples
from models.task_names import writes_images

if TYPE_CHECKING:
    from pathlib import Path

    from mmrl.rl_config import RLConfig
    from mmrl.rollouts.rollout import RolloutBatch
    from mmrl.training.trainer import Trainer
    from mmrl.types import Prompt
    from rewards.scoring.scorer import Scorer

logger = logging.getLogger(__name__)


class Progress:
    """Reporting of one run; a context manager that counts its steps and opens the trackers."""

    def __init__(
        self,
        config: RLConfig,
        run: RunDirectory,
        trainer: Trainer,
        tasks: Mapping[str, Task],
    ) -> None:
        self.config, self.run, self.trainer, self.tasks = config, run, trainer, tasks
        self.accelerator = trainer.accelerator
        self.batches: Mapping[str, RolloutBatch] = {}
        self.saved = self.evaluated = -1

    def __enter__(self) -> Progress:
        # a run that starts anew leaves no line, not even of the evaluation before its first step
        self.run.truncate_metrics(self.trainer.step or -1)
        self._prune()
        self.saved = self.trainer.step
        if any_process(self.run.is_main and self._has_evaluation()):
            self.evaluated = self.trainer.step
        if self.config.report_to:
            # wandb writes below the present folder unless it is told
            place = {"dir": str(self.run.path), "name": self.run.path.name}
            settings = _flat(to_plain(self.config))
            self.accelerator.init_trackers("mmrl", settings, {"wandb": place})
        self._steps = activity("step", self.config.max_steps, self.trainer.step)
        self.steps = self._steps.__enter__()
        self.clock = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._steps.__exit__(None, None, None)
        if self.config.report_to:
            self.accelerator.end_training()

    def record(self, metrics: Mapping[str, float], batches: Mapping[str, RolloutBatch]) -> None:
        """Add a step's metrics; write a line and move the bar when due."""
        self.batches = batches
        values = dict(metrics)
        for name, batch in batches.items():
            prefix = "" if len(batches) == 1 else f"{name}/"
            values |= {prefix + key: value for key, value in batch.metrics.items()}
        now = time.perf_counter()
        values["step_time"], self.clock = now - self.clock, now
        self.trainer.window.add({k: v for k, v in values.items() if math.isfinite(v)})
        self.steps.reach(self.trainer.step)
        self.steps.remark = _line(values)
        if self._due(self.config.logging_steps):
            self._log(self.trainer.window.take())

    def evaluate_when_due(self) -> None:
        """Score held-out prompts at the first step, every `eval_steps`, and at the last step.

        Raises:
            Interrupted: a stop is requested on any process; nothing of it is kept.
        """
        if self._evaluation_due():
            if self.trainer.step == 0:
                self._show_first_images()
            self._evaluate()
            if not self.batches:  # before the first step of this process
                self.clock, self.steps.started = time.perf_counter(), time.monotonic()

    def checkpoint_when_due(self) -> None:
        """Write a checkpoint every `save_steps`."""
        if self.config.save_steps and self._due(self.config.save_steps):
            self._checkpoint()

    def finish(self) -> bool:
        """Write the final model, or the checkpoint of a run that was stopped, and the report.

        Returns:
            Whether the run reached its last step and evaluated it where that is due.
        """
        finished = self.trainer.step >= self.config.max_steps and not self._evaluation_due()
        if finished:
            self._write(self.run.final, self.trainer.save_model)
            logger.info("finished; the model is in %s", self.run.final)
        else:
            if self.saved != self.trainer.step:
                self._checkpoint()
            logger.info("stopped at step %d; resume_from_checkpoint=auto continues", self.saved)
        if self.run.is_main:
            with activity("writing the report"):
                write_report(self.run.path)
            logger.info("report: %s", self.run.path / "report.html")
        return finished

    def _evaluation_due(self) -> bool:
        step, every = self.trainer.step, self.config.eval_steps
        due = step in (0, self.config.max_steps) or self._due(every)
        return every > 0 and due and step != self.evaluated

    def _has_evaluation(self) -> bool:
        """Whether the metrics hold an evaluation of the present step."""
        lines = self.run.read_metrics()
        return any("time/eval_s" in line for line in lines if line["step"] == self.trainer.step)

    def _evaluate(self) -> None:
        """Evaluate all tasks and keep the results, or none of them where a stop is requested."""
        results: dict[str, tuple[Evaluation, float]] = {}
        for name, task in self.tasks.items():
            if not task.eval_prompts:
                continue
            started = time.perf_counter()
            mine = local_share(len(task.eval_prompts), self.accelerator)
            with activity(f"evaluating {name}"), leaving_together():
                part = self._sampled(task, task.eval_prompts[mine], task.eval_scorer)
            result = gather_evaluation(part, task.eval_prompts, mine, self.config.eval_images)
            results[name] = result, time.perf_counter() - started
        self.evaluated = self.trainer.step
        for name, (result, seconds) in results.items():
            self._record_evaluation(name, result, seconds)

    def _show_first_images(self) -> None:
        """Write the grid of the first evaluation before it, without scores; the main process."""
        for name, task in self.tasks.items():
            if not writes_images(task.config.task) or not self.config.eval_images:
                continue
            some = spread(task.eval_prompts, self.config.eval_images) if self.run.is_main else []
            with activity("drawing the first images"), leaving_together():
                self._write_grid(name, self._sampled(task, some, None))

    def _sampled(self, task: Task, prompts: Sequence[Prompt], scorer: Scorer | None) -> Evaluation:
        return evaluate(
            self.trainer.policy,
            prompts,
            task.eval_sampler,
            scorer,
            seed=self.config.seed,
            batch_size=task.config.rollout_batch_size,
            length=task.eval_length,
        )

    def _record_evaluation(self, name: str, result: Evaluation, seconds: float) -> None:
        values = {f"eval/{name}/{key}": value for key, value in result.metrics().items()}
        self._log({**values, "time/eval_s": seconds})
        shown = ", ".join(f"{k} {v:.3f}" for k, v in values.items() if k.count("/") == 2)
        logger.info("step %d: %s", self.trainer.step, shown)
        self._write_grid(name, result)
        self._track(f"samples/eval_{name}", result)

    def _write_grid(self, name: str, result: Evaluation) -> None:
        path = self.run.samples / f"eval_{name}_{self.trainer.step:06d}.png"
        if self.run.is_main and write_grid(result, path, self.config.eval_images):
            logger.info("images: %s", path)

    def _checkpoint(self) -> None:
        self.saved = step = self.trainer.step
        self._write(self.run.checkpoints / str(step), self._save)
        self._prune(self.config.save_total_limit)
        if self.config.log_completions:
            for name, batch in self.batches.items():
                write_completions(self.run, name, step, batch)
                scores = {"reward": batch.rewards.tolist(), **batch.scores}
                result = Evaluation(batch.prompts, batch.completions, scores)
                self._track(f"samples/{name}", result)

    def _save(self, folder: Path) -> None:
        self.trainer.save(folder)
        if self.run.is_main:
            write_versions(self.tasks, folder)

    def _prune(self, keep: int | None = None) -> None:
        if self.run.is_main:
            prune_checkpoints(self.run.checkpoints, self.trainer.step, keep)

    def _write(self, target, write) -> None:
        with activity(f"writing {target}"):
            write_directory(target, write, self.run.is_main, self.accelerator.wait_for_everyone)

    def _log(self, values: Mapping[str, float]) -> None:
        self.run.append(self.trainer.step, values)
        if self.config.report_to:
            self.accelerator.log(dict(values), step=self.trainer.step)

    def _track(self, name: str, result: Evaluation) -> None:
        if self.config.report_to and self.run.is_main:
            count = self.config.eval_images
            log_samples(self.accelerator, name, self.trainer.step, result, count)

    def _due(self, every: int) -> bool:
        return every > 0 and self.trainer.step % every == 0


def _line(values: Mapping[str, float]) -> str:
    """Reward and seconds per phase, for the bar; of the rewards those the loop waited."""
    rewards = [f"{k} {v:.3f}" for k, v in values.items() if k.split("/")[-1] == "reward"]
    phases = {"rollout": "rollout", "rewards": "reward_wait", "score": "score", "update": "update"}
    times = [
        f"{name} {sum(v for k, v in values.items() if k.endswith(f'time/{phase}_s')):.1f}s"
        for name, phase in phases.items()
    ]
    return ", ".join([*rewards, *times])


def _flat(config: Mapping[str, object]) -> dict[str, str]:
    return {key: json.dumps(value, default=str) for key, value in config.items()}
