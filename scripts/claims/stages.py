"""The stages of a table, each with what is left to do of it: samplers, choices, runs and tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.claims import evaluations
from scripts.claims.jobs import Job
from scripts.claims.planned_runs import (
    Run,
    digest,
    digest_weights,
    forwards_per_rollout,
    read_curve,
    read_diversity,
    seconds_per_update,
)
from scripts.claims.records import machine
from scripts.claims.reportable import check_run_directory, check_weights, made_on
from scripts.claims.table import Table
from scripts.claims.table_config import SHUFFLED, STAGES, START


def stages(table: Table) -> Iterator[tuple[str, list[Job]]]:
    """The stages of this sitting up to `until`, each with what is left to do when it begins."""
    for name in STAGES:
        yield name, JOBS[name](table)
        if name == table.config.until:
            return


def sampler_jobs(table: Table) -> list[Job]:
    """Evaluations of the starting weights, under each sampler that is tried."""
    jobs = []
    for task in dict.fromkeys(task for task, _, _ in table.wanted):
        if not table.config.tasks[task].samplers or table.records.get("sampler", task=task):
            continue
        grid = table.sampler_grid(task)

        def settle(_: int, task: str = task) -> None:
            _settle_sampler(table, task)

        found = [
            evaluations.job(config, f"{task} sampler {n}", settle)
            for n, (_, config) in enumerate(grid)
            if not evaluations.has_run(config)
        ]
        if not found:
            _settle_sampler(table, task)
        jobs += found
    return jobs


def _settle_sampler(table: Table, task: str) -> None:
    """Record the best sampler when all have been tried."""
    grid = table.sampler_grid(task)
    known = table.records.get("sampler", task=task) is not None
    if known or not all(evaluations.has_run(config) for _, config in grid):
        return
    key = table.metric(task)
    tried = [
        {
            "sampler": evaluations.sampler_values(config.sampler),
            **evaluations.read_scores(Path(config.output_dir))[key],
        }
        for _, config in grid
    ]
    best = max(tried, key=lambda each: each["mean"])
    table.records.write(
        "sampler",
        task=task,
        chosen=best["sampler"],
        tried=tried,
        **made_on(table, task),
        weights=digest_weights(Path(table.start(task).model.path)),
        **machine(),
    )


def choice_jobs(table: Table) -> list[Job]:
    """Short runs, one for each of the settings that a method may get."""
    jobs = []
    for task, method in dict.fromkeys((t, m.removesuffix(SHUFFLED)) for t, m, _ in table.wanted):
        if table.chosen(task, method) is not None:
            continue

        def settle(_: int, task: str = task, method: str = method) -> None:
            _settle_choice(table, task, method)

        runs = [run for _, run in table.candidates(task, method)]
        for run in runs:
            check_run_directory(table, run)
        found = [run.job(settle) for run in runs if not run.finished]
        if not found:
            _settle_choice(table, task, method)
        jobs += found
    return jobs


def _settle_choice(table: Table, task: str, method: str) -> None:
    """Record the choice of a method when all its short runs are finished."""
    found = table.candidates(task, method)
    if table.chosen(task, method) is not None or not all(run.finished for _, run in found):
        return
    tried = []
    for settings, run in found:
        check_run_directory(table, run)
        curve = read_curve(run, table.config.tasks[task].metric)
        tried.append({"settings": settings, "start": curve[0]["score"], "end": curve[-1]["score"]})
    best = max(tried, key=lambda each: each["end"])
    table.records.write(
        "choice",
        task=task,
        method=method,
        chosen=best["settings"],
        tried=tried,
        **made_on(table, task),
        seed=table.config.selection.seed,
        steps=found[0][1].config.max_steps,
        **machine(),
    )


def run_jobs(table: Table) -> list[Job]:
    """Runs that are not recorded, with the settings that were chosen."""
    jobs = []
    for task, method, seed in table.wanted:
        if table.run_record(task, method, seed) is not None:
            continue
        run = table.run(task, method, seed)
        assert run is not None  # chosen in the stage before
        check_run_directory(table, run)

        def record(status: int, run: Run = run, seed: int = seed) -> None:
            _record_run(table, run, seed, status)

        if run.finished:
            record(0)
        else:
            jobs.append(run.job(record))
    return jobs


def _record_run(table: Table, run: Run, seed: int, status: int) -> None:
    check_run_directory(table, run)
    curve = read_curve(run, table.config.tasks[run.task].metric)
    table.records.write(
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


def test_jobs(table: Table) -> list[Job]:
    """Readings of test that recorded runs and their start have not had."""
    done = [each for each in table.wanted if table.run_record(*each) is not None]
    jobs: dict[str, Job] = {}
    for task, method, seed in done:
        for sampler in table.samplers(task, method):
            for name, number in ((START, None), (method, seed)):
                job = _test(table, task, name, method, number, sampler)
                if job is not None:
                    jobs.setdefault(job.label, job)
    return list(jobs.values())


def _test(
    table: Table, task: str, name: str, method: str, seed: int | None, sampler: dict[str, Any]
) -> Job | None:
    of = {"task": task, "method": name, "seed": seed, "sampler": sampler}
    if table.records.get("test", **of):
        return None
    config = table.start(task, method)
    weights, settings = config.model.path, digest(None)
    if seed is not None:
        run = table.run(task, method, seed)
        assert run is not None
        weights, settings = str(run.weights), digest(run.settings)
        check_weights(table, run, seed)
    folder = table.out / task / name / f"test_{seed}_{digest(sampler)}"
    test = table.config.tasks[task].test
    plan = evaluations.evaluation(
        config, task, weights, test, sampler, table.config.samples, folder
    )

    def record(_: int) -> None:
        table.records.write(
            "test",
            **of,
            scores=evaluations.read_scores(folder),
            diversity=evaluations.read_diversity(folder),
            prompts=test,
            samples=table.config.samples,
            weights=digest_weights(Path(weights)),
            config=settings,
            **machine(),
        )

    label = " ".join(["test", task, name, *[f"seed {seed}"] * (seed is not None), digest(sampler)])
    return evaluations.job(plan, label, record)


JOBS = {"samplers": sampler_jobs, "choices": choice_jobs, "runs": run_jobs, "tests": test_jobs}
"""By stage."""
