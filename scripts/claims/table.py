"""A table: its runs, their settings, and the samplers that test is read under."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mmrl.config import load_config
from mmrl.rl_config import RLConfig
from scripts.claims import evaluations
from scripts.claims.planned_runs import Run, reward_of
from scripts.claims.records import Record, Records
from scripts.claims.reportable import check_records, check_tasks
from scripts.claims.table_config import (
    SHUFFLED,
    START,
    Config,
    expand,
    points,
    words_of,
)

TRAINING, BEST = "training", "best at the start"
"""The samplers that test is read under."""


class Table:
    """A table and what is known of it.

    Args:
        config: settings.

    Raises:
        ConfigError: a run that cannot run or has read test prompts, or results of other settings.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.out = config, Path(config.output_dir)
        self.records = Records(Path(config.results or self.out / "results.jsonl"))
        check_tasks(self)
        check_records(self)

    def start(self, task: str, method: str | None = None) -> RLConfig:
        """Settings of a task as its configuration, or that of a method, has them."""
        return load_config(RLConfig, self.words(task, method or next(iter(self.config.methods))))

    def path(self, task: str, method: str) -> str:
        """RL configuration of a method on a task."""
        return self.config.methods[method.removesuffix(SHUFFLED)].run or self.config.tasks[task].run

    def words(self, task: str, method: str) -> list[str]:
        """What all runs of a method have."""
        options = self.config.methods[method.removesuffix(SHUFFLED)]
        algorithm = [f"tasks.{task}.algorithm={json.dumps(options.algorithm)}"]
        steps = self.config.max_steps
        return [
            f"config={self.path(task, method)}",
            f"tasks.{task}.eval_prompts={self.config.tasks[task].validation}",
            *algorithm * bool(options.algorithm),
            *[expand(word, task) for word in (*self.config.settings, *options.settings)],
            *[f"max_steps={steps}"] * (steps is not None),
        ]

    def candidates(self, task: str, method: str) -> list[tuple[dict[str, Any], Run]]:
        """The settings that a method may get, each with its short run; empty without a choice."""
        selection, folder = self.config.selection, self.out / task / method
        words = [f"max_steps={selection.max_steps}", f"seed={selection.seed}"]
        words += [expand(word, task) for word in selection.settings]
        return [
            (
                settings,
                Run(task, method, folder / f"choice_{n}", self._all(task, method, settings, words)),
            )
            for n, settings in enumerate(points(self.config.grid_of(method)))
            if settings
        ]

    def _all(
        self, task: str, method: str, settings: Mapping[str, Any], words: Sequence[str]
    ) -> list[str]:
        return [*self.words(task, method), *words_of(settings, task), *words]

    def run(self, task: str, method: str, seed: int) -> Run | None:
        """A run of the table; None where its settings are not chosen yet."""
        settings = self.chosen(task, method)
        if settings is None:
            return None
        limit = self.config.max_hours
        words = [
            f"seed={seed}",
            *[f"max_hours={limit}"] * (limit is not None),
            *[f"tasks.{task}.shuffle_advantages=true"] * method.endswith(SHUFFLED),
        ]
        folder = self.out / task / method / str(seed)
        return Run(task, method, folder, self._all(task, method, settings, words))

    def chosen(self, task: str, method: str) -> dict[str, Any] | None:
        """The settings chosen for a method, or for that of a control; None where not yet."""
        if not self.config.grid_of(method):
            return {}
        record = self.records.get("choice", task=task, method=method.removesuffix(SHUFFLED))
        return None if record is None else record["chosen"]

    @cached_property
    def wanted(self) -> list[tuple[str, str, int]]:
        """Task, method and seed of each run of this sitting, seed after seed."""
        return [each for each in self.all if self.config.selects(each[0], each[1], str(each[2]))]

    @cached_property
    def all(self) -> list[tuple[str, str, int]]:
        """Task, method and seed of each run."""
        config = self.config
        return [
            (task, row, seed)
            for seed in config.all_seeds
            for task in config.tasks
            for row in config.rows()
            if seed in config.seeds_of(row)
        ]

    def sampler_grid(self, task: str) -> list[tuple[dict[str, Any], Any]]:
        """The samplers that are tried for the starting weights, each with its evaluation."""
        config, options = self.start(task), self.config.tasks[task]
        folder = self.out / task / START
        how = task, config.model.path, options.validation
        return [
            (
                some,
                evaluations.evaluation(
                    config, *how, some, self.config.samples, folder / f"sampler_{n}"
                ),
            )
            for n, some in enumerate(points(options.samplers))
        ]

    def samplers(self, task: str, method: str) -> list[dict[str, Any]]:
        """The samplers that a method's runs are tested under: the training sampler, then the best
        of the starting weights, where they differ."""
        each = [self.training_sampler(task, method), self.best_sampler(task)]
        return [s for n, s in enumerate(each) if s is not None and s not in each[:n]]

    def training_sampler(self, task: str, method: str) -> dict[str, Any]:
        """The sampler of a method's rollouts."""
        return evaluations.sampler_values(self.start(task, method).tasks[task].sampler)

    def best_sampler(self, task: str) -> dict[str, Any] | None:
        """The best sampler of the starting weights; None where it is not chosen."""
        record = self.records.get("sampler", task=task)
        return None if record is None else record["chosen"]

    def metric(self, task: str) -> str:
        """Key of the reward that is reported."""
        run = Run(task, "", self.out, self.words(task, next(iter(self.config.methods))))
        return reward_of(run, task, self.config.tasks[task].metric)

    def run_record(self, task: str, method: str, seed: int) -> Record | None:
        """The result of a run; None where it is not finished."""
        return self.records.get("run", task=task, method=method, seed=seed)
