"""A table: its runs, the order of its stages, and what of it may be reported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError, check, load_config, to_plain
from mmrl.config.settings import flatten
from mmrl.rl_config import RLConfig
from scripts.claims import evaluations
from scripts.claims.held_out_prompts import check_directory, check_unread, prompt_digests
from scripts.claims.jobs import Job
from scripts.claims.planned_runs import (
    FREE,
    Run,
    digest,
    digest_weights,
    forwards_per_rollout,
    read_curve,
    read_diversity,
    reward_of,
    seconds_per_update,
)
from scripts.claims.records import Record, Records, machine
from scripts.claims.table_config import (
    SHUFFLED,
    START,
    ClaimTask,
    Config,
    expand,
    one_task,
    points,
    words_of,
)

SHOWN = 5
"""Most differences that a message lists."""
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
        for task in config.tasks:
            self._check_task(task)
        self._check_records()

    # what is planned

    def start(self, task: str, method: str | None = None) -> RLConfig:
        """Settings of a task as its configuration, or that of a method, has them."""
        return load_config(RLConfig, self._words(task, method or next(iter(self.config.methods))))

    def path(self, task: str, method: str) -> str:
        """RL configuration of a method on a task."""
        return self.config.methods[method.removesuffix(SHUFFLED)].run or self.config.tasks[task].run

    def _words(self, task: str, method: str) -> list[str]:
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
        return [*self._words(task, method), *words_of(settings, task), *words]

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

    # stages

    def stages(self) -> Iterator[tuple[str, list[Job]]]:
        """The stages of this sitting up to `until`, each with what is left to do when it begins."""
        for name in ("samplers", "choices", "runs", "tests"):
            yield name, getattr(self, f"_{name}")()
            if name == self.config.until:
                return

    def _samplers(self) -> list[Job]:
        jobs = []
        for task in dict.fromkeys(task for task, _, _ in self.wanted):
            if not self.config.tasks[task].samplers or self.records.get("sampler", task=task):
                continue
            grid = self.sampler_grid(task)

            def settle(_: int, task: str = task) -> None:
                self._settle_sampler(task)

            found = [
                evaluations.job(config, f"{task} sampler {n}", settle)
                for n, (_, config) in enumerate(grid)
                if not evaluations.has_run(config)
            ]
            if not found:
                self._settle_sampler(task)
            jobs += found
        return jobs

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

    def _settle_sampler(self, task: str) -> None:
        """Record the best sampler when all have been tried."""
        grid = self.sampler_grid(task)
        known = self.records.get("sampler", task=task) is not None
        if known or not all(evaluations.has_run(config) for _, config in grid):
            return
        key = self.metric(task)
        tried = [
            {
                "sampler": evaluations.sampler_values(config.sampler),
                **evaluations.read_scores(Path(config.output_dir))[key],
            }
            for _, config in grid
        ]
        best = max(tried, key=lambda each: each["mean"])
        self.records.write(
            "sampler",
            task=task,
            chosen=best["sampler"],
            tried=tried,
            **self._made_on(task),
            weights=digest_weights(Path(self.start(task).model.path)),
            **machine(),
        )

    def _choices(self) -> list[Job]:
        jobs = []
        for task, method in dict.fromkeys((t, m.removesuffix(SHUFFLED)) for t, m, _ in self.wanted):
            if self.chosen(task, method) is not None:
                continue

            def settle(_: int, task: str = task, method: str = method) -> None:
                self._settle_choice(task, method)

            runs = [run for _, run in self.candidates(task, method)]
            for run in runs:
                self._check_directory(run)
            found = [run.job(settle) for run in runs if not run.finished]
            if not found:
                self._settle_choice(task, method)
            jobs += found
        return jobs

    def _settle_choice(self, task: str, method: str) -> None:
        """Record the choice of a method when all its short runs are finished."""
        found = self.candidates(task, method)
        if self.chosen(task, method) is not None or not all(run.finished for _, run in found):
            return
        tried = []
        for settings, run in found:
            self._check_directory(run)
            curve = read_curve(run, self.config.tasks[task].metric)
            tried.append(
                {"settings": settings, "start": curve[0]["score"], "end": curve[-1]["score"]}
            )
        best = max(tried, key=lambda each: each["end"])
        self.records.write(
            "choice",
            task=task,
            method=method,
            chosen=best["settings"],
            tried=tried,
            **self._made_on(task),
            seed=self.config.selection.seed,
            steps=found[0][1].config.max_steps,
            **machine(),
        )

    def _runs(self) -> list[Job]:
        jobs = []
        for task, method, seed in self.wanted:
            if self.records.get("run", task=task, method=method, seed=seed):
                continue
            run = self.run(task, method, seed)
            assert run is not None  # chosen in the stage before
            self._check_directory(run)

            def record(status: int, run: Run = run, seed: int = seed) -> None:
                self._record_run(run, seed, status)

            if run.finished:
                record(0)
            else:
                jobs.append(run.job(record))
        return jobs

    def _record_run(self, run: Run, seed: int, status: int) -> None:
        self._check_directory(run)
        curve = read_curve(run, self.config.tasks[run.task].metric)
        self.records.write(
            "run",
            task=run.task,
            method=run.method,
            seed=seed,
            steps=run.steps,
            ended="by max_hours" if status else "at its last step",
            curve=curve,
            diversity=read_diversity(run),
            forwards=forwards_per_rollout(run.config),
            update_s=round(seconds_per_update(run), 3),
            settings=run.settings,
            config=digest(run.settings),
            weights=digest_weights(run.weights),
            **machine(),
        )

    def _tests(self) -> list[Job]:
        done = [each for each in self.wanted if self._run_record(*each) is not None]
        jobs: dict[str, Job] = {}
        for task, method, seed in done:
            for sampler in self.samplers(task, method):
                for name, number in ((START, None), (method, seed)):
                    job = self._test(task, name, method, number, sampler)
                    if job is not None:
                        jobs.setdefault(job.label, job)
        return list(jobs.values())

    def _test(
        self, task: str, name: str, method: str, seed: int | None, sampler: dict[str, Any]
    ) -> Job | None:
        of = {"task": task, "method": name, "seed": seed, "sampler": sampler}
        if self.records.get("test", **of):
            return None
        config = self.start(task, method)
        weights, settings = config.model.path, digest(None)
        if seed is not None:
            run = self.run(task, method, seed)
            assert run is not None
            weights, settings = str(run.weights), digest(run.settings)
            self._check_weights(run, seed)
        folder = self.out / task / name / f"test_{seed}_{digest(sampler)}"
        test = self.config.tasks[task].test
        plan = evaluations.evaluation(
            config, task, weights, test, sampler, self.config.samples, folder
        )

        def record(_: int) -> None:
            self.records.write(
                "test",
                **of,
                scores=evaluations.read_scores(folder),
                diversity=evaluations.read_diversity(folder),
                prompts=test,
                samples=self.config.samples,
                weights=digest_weights(Path(weights)),
                config=settings,
                **machine(),
            )

        label = " ".join(
            ["test", task, name, *[f"seed {seed}"] * (seed is not None), digest(sampler)]
        )
        return evaluations.job(plan, label, record)

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
        run = Run(task, "", self.out, self._words(task, next(iter(self.config.methods))))
        return reward_of(run, task, self.config.tasks[task].metric)

    # what may be reported

    def _made_on(self, task: str) -> dict[str, str]:
        options = self.config.tasks[task]
        prompts = prompt_digests(options.validation, self.start(task).tasks[task], held_out=True)
        return {"made_on": options.validation, "prompts": digest(sorted(prompts))}

    def _check_task(self, name: str) -> None:
        options, start = self.config.tasks[name], self.start_of_all(name)
        for method in self.config.methods:
            words = self._words(name, method)
            config, where = load_config(RLConfig, words), f"methods.{method}"
            evaluated = config.tasks[name].eval_prompts
            check_unread(config, name, options.test, where)
            advice = f"It must be tasks.{name}.validation of the table."
            check(
                evaluated == options.validation,
                f"{where} eval_prompts",
                evaluated,
                "left as it is",
                advice,
            )
            check(config.eval_steps > 0, f"{where} eval_steps", 0, "above 0", "It makes the curve.")
            same = config.model.path == start.model.path
            check(
                same,
                f"{where} model.path",
                config.model.path,
                f"'{start.model.path}', as of others",
            )
            for settings, run in self.candidates(name, method):
                check_unread(run.config, name, options.test, f"{where} with {settings}")
        self.metric(name)
        self.sampler_grid(name)

    def start_of_all(self, task: str) -> RLConfig:
        """Settings of the first method, whose weights at the start all methods must have."""
        for method in self.config.methods:
            path = self.path(task, method)
            one_task(load_config(RLConfig, [f"config={path}"]).tasks, task, path)
        return self.start(task)

    def _check_records(self) -> None:
        for task, options in self.config.tasks.items():
            self._check_choice(self.records.get("sampler", task=task), task, "the sampler")
            self._check_tried_samplers(task, options)
            for method in self.config.methods:
                record = self.records.get("choice", task=task, method=method)
                self._check_choice(record, task, f"the choice of {method}")
                self._check_tried(record, task, method)
        for each in self.all:
            self._check_run_record(*each)

    def _check_choice(self, record: Record | None, task: str, what: str) -> None:
        """Refuse a choice that was not made on the validation prompts of the table."""
        if record is None:
            return
        for key, value in self._made_on(task).items():
            if record.get(key) != value:
                raise ConfigError(
                    f"{what} on {task} was made on {record.get('made_on')!r} ({key} is"
                    f" {record.get(key)!r}), not on the table's validation prompts ({value!r}). It"
                    " cannot be reported: name another file as results and choose again."
                )

    def _check_tried_samplers(self, task: str, options: ClaimTask) -> None:
        record = self.records.get("sampler", task=task)
        if record is not None:
            grid = [
                evaluations.sampler_values(config.sampler) for _, config in self.sampler_grid(task)
            ]
            self._check_grid(record, "sampler", grid, f"tasks.{task}.samplers")

    def _check_tried(self, record: Record | None, task: str, method: str) -> None:
        if record is not None:
            grid = list(points(self.config.grid_of(method)))
            self._check_grid(record, "settings", grid, f"the grid of {method} on {task}")

    def _check_grid(self, record: Record, key: str, grid: list[Any], what: str) -> None:
        if [each[key] for each in record["tried"]] != grid:
            raise ConfigError(
                f"{what} has other values than those that were tried. Set them back, or name"
                f" another file than '{self.records.path}' as results and choose again."
            )

    def _run_record(self, task: str, method: str, seed: int) -> Record | None:
        return self.records.get("run", task=task, method=method, seed=seed)

    def _check_run_record(self, task: str, method: str, seed: int) -> None:
        """Refuse results of other settings than those of the table."""
        record = self._run_record(task, method, seed)
        if record is None:
            return
        run = self.run(task, method, seed)
        if run is None:
            raise ConfigError(
                f"'{self.records.path}' has a run of {method} on {task}, but no choice made on"
                f" validation of {', '.join(self.config.grid_of(method))}. It cannot be reported:"
                " restore the line of the choice, or name another file as results."
            )
        if record["config"] != digest(run.settings):
            told = _differences(record["settings"], run.settings)
            raise ConfigError(
                f"{run.label} was recorded with other settings: {told}. Test is read once per"
                " setting of a table: set them back, or name another file as results (and another"
                " output_dir), and say on the page that test was read before."
            )
        if run.folder.is_dir() and (run.finished or (run.folder / "checkpoints").is_dir()):
            self._check_weights(run, seed)

    def _check_weights(self, run: Run, seed: int) -> None:
        record = self._run_record(run.task, run.method, seed)
        found = digest_weights(run.weights)
        if record is not None and record["weights"] != found:
            raise ConfigError(
                f"'{run.weights}' has other weights ({found}) than the run that was recorded"
                f" ({record['weights']}). Test is read once per run: restore them, or name another"
                " output_dir and another file as results."
            )

    def _check_directory(self, run: Run) -> None:
        """Refuse a directory with a run of other settings, or one that has read test prompts."""
        path = run.folder / "config.yaml"
        if not path.is_file():
            return
        check_directory(run.folder, run.task, self.config.tasks[run.task].test)
        there = load_config(RLConfig, [f"config={path}"])
        told = _differences(_plain(there), _plain(run.config))
        if told:
            raise ConfigError(
                f"'{run.folder}' holds a run with other settings: {told}. Remove it, or choose"
                " another output_dir."
            )


def _plain(config: RLConfig) -> dict[str, Any]:
    found = flatten(to_plain(config), lists=False)
    return {key: value for key, value in found if not FREE.fullmatch(key)}


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs, in words; empty where nothing does."""
    changed = [key for key in sorted({**old, **new}) if old.get(key) != new.get(key)]
    shown = [f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in changed[:SHOWN]]
    return "; ".join(shown) + (f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else "")
