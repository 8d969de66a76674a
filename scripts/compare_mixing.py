"""One policy trained on several tasks at once, beside a policy for each: one table.

    python scripts/compare_mixing.py run=configs/rl/unified_shapes.yaml
    python scripts/compare_mixing.py run=configs/rl/unified_shapes.yaml seeds="[0]" workers=1

For every seed the configuration runs as it is, and once more for each task with the others left
out: the same rollouts and steps for the task, the same settings. Runs are processes of their own on
one thread; finished ones are not repeated and interrupted ones go on where they stopped. The table
is printed and written to `<output_dir>/table.md`. Scores are of held-out prompts, means over the
seeds; changes have their standard error over the seeds, and those of each seed beside them.

A task with an entry in `samplers` has a second line: the weights before and after under this
sampler, as in

    samplers="{drawing: {steps: 32, temperature: 1}}" samples=4
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from eval.eval_config import EvalConfig  # noqa: E402
from mmrl.config import check, check_choice, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from scripts.claims.evaluations import evaluation, has_run, job, read_scores  # noqa: E402
from scripts.claims.jobs import execute_all  # noqa: E402
from scripts.claims.planned_runs import Run, held_out, reward_of  # noqa: E402
from scripts.claims.statistics import mean_over_seeds  # noqa: E402

TOGETHER = "together"
TRAINING, BEST = "training", "of `samplers`"
HEAD = (
    *("task", "sampler", "before", "after, together", "change", "of each seed"),
    *("after, alone", "change", "of each seed"),
)
Scores = Sequence[tuple[float, float]]
"""Before and after, of each seed."""


@dataclass(kw_only=True)
class Config:
    """What to compare."""

    run: str = "configs/rl/unified_shapes.yaml"
    """RL configuration of several tasks."""
    output_dir: str = "runs/mixing"
    """Where the runs go: `together/<seed>` and `<task>/<seed>`."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    """Of the runs."""
    settings: list[str] = field(default_factory=list)
    """Words added to every run, such as max_steps=10."""
    workers: int = 2
    """Runs at the same time, one thread each."""
    samplers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings laid over those of a task's sampler, for its second line, by task."""
    samples: int = 1
    """Completions per prompt under these samplers."""

    def __post_init__(self) -> None:
        check(self.samples >= 1, "samples", self.samples, "at least 1")
        check(bool(self.seeds), "seeds", self.seeds, "one or more")
        check(self.workers >= 1, "workers", self.workers, "at least 1")


USAGE = Usage("python scripts/compare_mixing.py", __doc__, Config)


def runs(config: Config) -> list[Run]:
    """All runs, seed after seed, so that a table can be made of the first ones.

    Raises:
        ConfigError: fewer than two tasks, or settings of a run that cannot run.
    """
    tasks = list(load_config(RLConfig, [f"config={config.run}"]).tasks)
    check(len(tasks) > 1, f"tasks of {config.run}", tasks, "two or more")
    kept = {TOGETHER: tasks} | {task: [task] for task in tasks}
    return [
        _run(config, name, [task for task in tasks if task not in some], seed)
        for seed in config.seeds
        for name, some in kept.items()
    ]


def _run(config: Config, name: str, others: Sequence[str], seed: int) -> Run:
    folder = Path(config.output_dir) / name / str(seed)
    words = [
        f"config={config.run}",
        f"seed={seed}",
        *[f"~tasks.{task}" for task in others],
        *config.settings,
    ]
    return Run(name, "alone" if others else "", folder, words)


def evaluations_of(config: Config, found: Sequence[Run]) -> dict[tuple[str, Path], EvalConfig]:
    """Evaluations under `samplers`: of the weights at the start, and of every run of such a task.

    Returns:
        Settings by task and the directory of the run, `output_dir` for the start.

    Raises:
        ConfigError: a sampler of a task that is not there, or an impossible one.
    """
    first, start = found[0].config, Path(config.output_dir)
    for task in config.samplers:
        check_choice("samplers", task, first.tasks)
    trained = [(run.folder, str(run.folder / "final"), run.config.tasks) for run in found]
    return {
        (task, folder): evaluation(
            *(first, task, weights, first.tasks[task].eval_prompts, sampler),
            *(config.samples, folder / f"eval_{task}"),
        )
        for task, sampler in config.samplers.items()
        for folder, weights, tasks in [(start, first.model.path, first.tasks), *trained]
        if task in tasks
    }


def row(task: str, sampler: str, together: Scores, alone: Scores) -> tuple[str, ...]:
    """A line of a task, from the scores of all seeds."""
    before, after = (fmean(some) for some in zip(*together, strict=True))
    return (
        *(task, sampler, f"{before:.3f}", f"{after:.3f}", *_changes(together)),
        *(f"{fmean(scores[-1] for scores in alone):.3f}", *_changes(alone)),
    )


def _changes(scores: Scores) -> tuple[str, str]:
    """Mean of last minus first score over the seeds, with its standard error, and each of them."""
    changes = [after - before for before, after in scores]
    return mean_over_seeds(changes).signed(), ", ".join(f"{change:+.3f}" for change in changes)


def rows(config: Config, found: Sequence[Run]) -> list[tuple[str, ...]]:
    """The lines of every task, in the order of the configuration."""
    read, lines = evaluations_of(config, found), []
    for task in found[0].config.tasks:
        kinds = [[run for run in found if run.task == name] for name in (TOGETHER, task)]
        curves = [[held_out(run, task, run.lines) for run in some] for some in kinds]
        lines.append(row(task, TRAINING, *[[(c[0], c[-1]) for c in some] for some in curves]))
        if task in config.samplers:
            key = reward_of(found[0], task)
            score = {
                folder: read_scores(Path(some.output_dir))[key]["mean"]
                for (name, folder), some in read.items()
                if name == task
            }
            before = score[Path(config.output_dir)]
            scores = [[(before, score[run.folder]) for run in some] for some in kinds]
            lines.append(row(task, BEST, *scores))
    return lines


def table(config: Config, found: Sequence[Run]) -> str:
    """Markdown of all lines."""
    cells = [HEAD, ("---",) * len(HEAD), *rows(config, found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def main(arguments: Sequence[str]) -> int:
    """Compare what the command line says; return the exit status."""

    def work() -> None:
        config = load_config(Config, arguments)
        wanted = runs(config)
        left = evaluations_of(config, wanted).values()
        execute_all([run.job() for run in wanted if not run.finished], config.workers)
        jobs = [job(each, each.output_dir, lambda _: None) for each in left if not has_run(each)]
        execute_all(jobs, config.workers)
        text = table(config, wanted)
        (Path(config.output_dir) / "table.md").write_text(text, encoding="utf-8")
        print(text, end="")

    return run_command(USAGE, arguments, work, RuntimeError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
