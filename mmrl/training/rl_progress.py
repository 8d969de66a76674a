"""What an RL run adds to its progress: evaluations of its tasks and completions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from accelerate.utils import gather_object

from mmrl.rollouts.chain import lead
from mmrl.rollouts.held_out import Evaluation, evaluate, gather_evaluation, local_share
from mmrl.rollouts.held_out_grid import write_grid
from mmrl.rollouts.tasks import Task
from mmrl.run.hub_upload import upload
from mmrl.run.run_directory import RunDirectory
from mmrl.run.sample_files import write_data_card
from mmrl.run.stop_rule import find_standing
from mmrl.runtime.activity import activity
from mmrl.runtime.interrupt import leave_together
from mmrl.training.completions import write_completions, write_evaluation
from mmrl.training.progress import Progress
from mmrl.training.trackers import log_samples
from mmrl.training.trainers import Trainers

if TYPE_CHECKING:
    from mmrl.rollouts.rollout import RolloutBatch

logger = logging.getLogger(__name__)


class RLProgress(Progress):
    """Progress of an RL run; evaluations are of the held-out prompts of its tasks."""

    def __init__(self, run: RunDirectory, trainer: Trainers, tasks: Mapping[str, Task]) -> None:
        super().__init__(run, trainer, self._evaluate, at_ends=True)
        self.tasks, self.images = tasks, trainer.settings.eval_images

    def record_step(
        self, metrics: Mapping[str, float], batches: Mapping[str, RolloutBatch]
    ) -> None:
        """Add the metrics of a step and of its rollouts to the window, see `record`."""
        values = dict(metrics)
        for name, batch in batches.items():
            prefix = "" if len(batches) == 1 else f"{name}/"
            values |= {prefix + key: value for key, value in batch.metrics.items()}
        before, self.clock = self.clock, time.perf_counter()
        values["step_time"] = self.clock - before
        self.trainer.window.add({k: v for k, v in values.items() if math.isfinite(v)})
        self.record(_remark(values))
        wanted = map(self._is_due, (self.config.save_steps, self.config.log_completions_steps or 0))
        due = any(wanted) or self.trainer.step == self.config.max_steps
        for name, batch in batches.items() if due and self.config.log_completions else ():
            write_completions(self.run, name, self.trainer.step, batch)
            scores = {"reward": batch.rewards.tolist(), **batch.scores}
            self._track(f"samples/{name}", Evaluation(batch.prompts, batch.completions, scores))

    def evaluate_when_due(self) -> None:
        """See `Progress.evaluate_when_due`; an evaluation may end the run, by `stop_on`."""
        super().evaluate_when_due()
        rule, step = self.config.stop_on, self.trainer.step
        if rule is None or self.stopped or step not in (self.begun, self.evaluated):
            return
        standing = find_standing(rule, self.run.read_metrics() if self.run.is_main else [])
        found = gather_object([(standing.step, standing.describe_end(rule))])
        self.checkpoints.best, self.stopped = found[0]
        if self.stopped:
            logger.info("step %d: %s", step, self.stopped)
            if self.trainer.window.counts:  # steps since the last line of metrics
                self._log(self.trainer.take_metrics())

    def finish(self) -> bool:
        """See `Progress.finish`; of a run at its end the completions are uploaded, if asked."""
        finished, repository = super().finish(), self.config.log_completions_hub_repo
        if finished and repository is not None and self.run.is_main:
            private, card = self.config.hub_private_repo, partial(write_data_card, self.run.samples)
            upload(self.run.samples, repository, private, "dataset", card)
        return finished

    def _evaluate(self) -> list[Mapping[str, float]]:
        """Evaluate all tasks, or keep nothing of it where a stop is requested."""
        results: dict[str, tuple[Evaluation, float]] = {}
        for name, task in self.tasks.items():
            if not task.eval_prompts:
                continue
            started = time.perf_counter()
            mine = local_share(len(task.eval_prompts), self.accelerator)
            with activity(f"evaluating {name}"), leave_together():
                part = evaluate(
                    task.policy,
                    lead(task, task.eval_prompts[mine], self.config.seed),
                    task.eval_sampler,
                    task.eval_scorer,
                    seed=self.config.seed,
                    batch_size=task.config.rollouts_at_once,
                    length=task.eval_length,
                )
            result = gather_evaluation(part, task.eval_prompts, mine, self.images)
            results[name] = result, time.perf_counter() - started
        return [self._show(name, *found) for name, found in results.items()]

    def _show(self, name: str, result: Evaluation, seconds: float) -> Mapping[str, float]:
        """Log the scores of a task and show its samples; return its line of metrics."""
        values = {f"eval/{name}/{key}": value for key, value in result.metrics().items()}
        shown = ", ".join(f"{k} {v:.3f}" for k, v in values.items() if k.count("/") == 2)
        logger.info("step %d: %s", self.trainer.step, shown)
        path = self.run.samples / f"eval_{name}_{self.trainer.step:06d}.png"
        if self.run.is_main and (written := write_grid(result, path, self.images)):
            logger.info("images: %s", written)
        if self.run.is_main and self.config.log_completions:
            write_evaluation(self.run, name, self.trainer.step, result, self.images)
        self._track(f"samples/eval_{name}", result)
        return {**values, "time/eval_s": seconds}

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
