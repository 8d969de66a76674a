"""What an RL run adds to its progress: evaluations of its tasks, completions, reward versions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mmrl.data.prompts import spread
from mmrl.models.task_names import writes_images
from mmrl.rollouts.held_out import Evaluation, evaluate, gather_evaluation, local_share
from mmrl.rollouts.held_out_grid import write_grid
from mmrl.rollouts.tasks import Task
from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import activity
from mmrl.runtime.interrupt import leave_together
from mmrl.training.completions import write_completions, write_evaluation
from mmrl.training.progress import Progress
from mmrl.training.reward_versions import write_versions
from mmrl.training.trackers import log_samples
from mmrl.training.trainer import Trainer

if TYPE_CHECKING:
    from mmrl.rewards.scoring.scorer import Scorer
    from mmrl.rollouts.rollout import RolloutBatch
    from mmrl.types import Prompt

logger = logging.getLogger(__name__)


class RLProgress(Progress):
    """Progress of an RL run; evaluations are of the held-out prompts of its tasks."""

    def __init__(self, run: RunDirectory, trainer: Trainer, tasks: Mapping[str, Task]) -> None:
        super().__init__(run, trainer, self._evaluate, at_ends=True)
        self.averaged = trainer.averaged
        self.policy, self.tasks, self.images = trainer.policy, tasks, trainer.config.eval_images
        self.batches: Mapping[str, RolloutBatch] = {}

    def record_step(
        self, metrics: Mapping[str, float], batches: Mapping[str, RolloutBatch]
    ) -> None:
        """Add the metrics of a step and of its rollouts to the window, see `record`."""
        self.batches = batches
        values = dict(metrics)
        for name, batch in batches.items():
            prefix = "" if len(batches) == 1 else f"{name}/"
            values |= {prefix + key: value for key, value in batch.metrics.items()}
        values["step_time"] = self.take_time()
        self.trainer.window.add({k: v for k, v in values.items() if math.isfinite(v)})
        self.record(_remark(values))
        if self._records_rollouts():
            self._write_rollouts()

    def save(self, folder: Path) -> None:
        """Fill the directory of a checkpoint; all processes call this."""
        super().save(folder)
        if self.run.is_main:
            write_versions(self.tasks, folder)

    def write_checkpoint(self) -> None:
        """Write a checkpoint, and the rollouts of its step where they are not written yet."""
        super().write_checkpoint()
        if not self._records_rollouts():
            self._write_rollouts()

    def _records_rollouts(self) -> bool:
        """Whether the rollouts of this step are written without a checkpoint as well."""
        settings = self.trainer.settings
        last = self.trainer.step == settings.max_steps
        return last or self._is_due(settings.log_completions_steps or 0)

    def _write_rollouts(self) -> None:
        """Write the rollouts of this step to `samples/`, where that is wanted."""
        if self.trainer.settings.log_completions:
            for name, batch in self.batches.items():
                write_completions(self.run, name, self.trainer.step, batch)
                scores = {"reward": batch.rewards.tolist(), **batch.scores}
                result = Evaluation(batch.prompts, batch.completions, scores)
                self._track(f"samples/{name}", result)

    def _evaluate(self) -> list[Mapping[str, float]]:
        """Evaluate all tasks under the averaged weights, where there is an average, or keep nothing
        of it where a stop is requested."""
        with self.averaged():
            return self._evaluate_tasks()

    def _evaluate_tasks(self) -> list[Mapping[str, float]]:
        if self.trainer.step == 0:
            self._draw_first_images()
        results: dict[str, tuple[Evaluation, float]] = {}
        for name, task in self.tasks.items():
            if not task.eval_prompts:
                continue
            started = time.perf_counter()
            mine = local_share(len(task.eval_prompts), self.accelerator)
            with activity(f"evaluating {name}"), leave_together():
                part = self._sample(task, task.eval_prompts[mine], task.eval_scorer)
            result = gather_evaluation(part, task.eval_prompts, mine, self.images)
            results[name] = result, time.perf_counter() - started
        return [self._show(name, *found) for name, found in results.items()]

    def _draw_first_images(self) -> None:
        """Write the grid of the first evaluation before it, without scores; the main process."""
        for name, task in self.tasks.items():
            if not writes_images(task.config.task) or not self.images:
                continue
            some = spread(task.eval_prompts, self.images) if self.run.is_main else []
            with activity("drawing the first images"), leave_together():
                self._write_grid(name, self._sample(task, some, None))

    def _sample(self, task: Task, prompts: Sequence[Prompt], scorer: Scorer | None) -> Evaluation:
        return evaluate(
            self.policy,
            prompts,
            task.eval_sampler,
            scorer,
            seed=self.config.seed,
            batch_size=task.config.rollout_batch_size,
            length=task.eval_length,
        )

    def _show(self, name: str, result: Evaluation, seconds: float) -> Mapping[str, float]:
        """Log the scores of a task and show its samples; return its line of metrics."""
        values = {f"eval/{name}/{key}": value for key, value in result.metrics().items()}
        shown = ", ".join(f"{k} {v:.3f}" for k, v in values.items() if k.count("/") == 2)
        logger.info("step %d: %s", self.trainer.step, shown)
        self._write_grid(name, result)
        if self.run.is_main and self.trainer.settings.log_completions:
            write_evaluation(self.run, name, self.trainer.step, result, self.images)
        self._track(f"samples/eval_{name}", result)
        return {**values, "time/eval_s": seconds}

    def _write_grid(self, name: str, result: Evaluation) -> None:
        path = self.run.samples / f"eval_{name}_{self.trainer.step:06d}.png"
        if self.run.is_main and write_grid(result, path, self.images):
            logger.info("images: %s", path)

    def _track(self, name: str, result: Evaluation) -> None:
        if self.config.report_to and self.run.is_main:
            log_samples(self.accelerator, name, self.trainer.step, result, self.images)


def _remark(values: Mapping[str, float]) -> str:
    """Rewards and seconds per phase, for the bar; of the rewards the time that the loop waited."""
    rewards = [f"{k} {v:.3f}" for k, v in values.items() if k.split("/")[-1] == "reward"]
    phases = {"rollout": "rollout", "rewards": "reward_wait", "score": "score", "update": "update"}
    times = [
        f"{name} {sum(v for k, v in values.items() if k.endswith(f'time/{phase}_s')):.1f}s"
        for name, phase in phases.items()
    ]
    return ", ".join([*rewards, *times])
