"""One policy trained on several tasks at once, beside a policy for each: one table.

    python scripts/compare_mixing.py run=configs/rl/unified_shapes.yaml
    python scripts/compare_mixing.py run=configs/rl/unified_shapes.yaml seeds="[0]" workers=1

For every seed the configuration runs as it is, once more for each task with the others left out
(the same rollouts and steps for the task, the same settings), and with shuffled advantages, as a
control. Runs are processes of their own on one thread; finished ones are not repeated and
interrupted ones go on where they stopped. The table is printed and written to
`<output_dir>/table.md`. Scores are of held-out prompts, means over the seeds; changes have their
standard error over the seeds, and those of each seed beside them.

A task with an entry in `samplers` has further lines: the weights before and after under this
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

from mmrl.config import check, check_choice, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.evaluation.eval_config import EvalConfig  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from scripts.claims.evaluations import evaluation, has_run, job, read_scores  # noqa: E402
from scripts.claims.jobs import execute_all  # noqa: E402
from scripts.claims.planned_runs import Run, held_out, reward_of  # noqa: E402
from scripts.claims.statistics import mean_over_seeds  # noqa: E402

TOGETHER, ALONE, CONTROL = "together", "alone", "shuffled"
TRAINING, BEST = "training", "of `samplers`"
HEAD = ("task", "sampler", "run", "before", "after", "change", "of each seed")
Scores = Sequence[tuple[float, float]]
"""Before and after, of each seed."""


@dataclass(kw_only=True)
class Config:
    """What to compare."""

    run: str = "configs/rl/unified_shapes.yaml"
    """RL configuration of several tasks."""
    output_dir: str = "runs/mixing"
    """Where the runs go: `together/<seed>`, `<task>/<seed>` and `shuffled/<seed>`."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    """Of the runs."""
    settings: list[str] = field(default_factory=list)
    """Words added to every run, such as max_steps=10."""
    control: bool = True
    """Whether all tasks are also trained together with shuffled advantages."""
    workers: int = 2
    """Runs at the same time, one thread each."""
    samplers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings laid over those of a task's sampler, for its further lines, by task."""
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
    names = [name for name in tasks if name in (TOGETHER, CONTROL)]
    check(not names, f"tasks of {config.run}", names, f"other names than {TOGETHER}, {CONTROL}")
    differences: dict[str, list[str]] = {TOGETHER: []}
    for task in tasks:
        differences[task] = [f"~tasks.{other}" for other in tasks if other != task]
    if config.control:
        differences[CONTROL] = [f"tasks.{task}.shuffle_advantages=true" for task in tasks]
    return [
        _run(config, name, words, seed)
        for seed in config.seeds
        for name, words in differences.items()
    ]


def _run(config: Config, name: str, differences: Sequence[str], seed: int) -> Run:
    folder = Path(config.output_dir) / name / str(seed)
    words = [f"config={config.run}", f"seed={seed}", *differences, *config.settings]
    return Run(name, "" if name in (TOGETHER, CONTROL) else ALONE, folder, words)


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


def row(task: str, sampler: str, kind: str, scores: Scores) -> tuple[str, ...]:
    """A line of the table, from the scores of all seeds of one kind of run."""
    before, after = (fmean(some) for some in zip(*scores, strict=True))
    changes = [last - first for first, last in scores]
    return (
        *(task, sampler, kind, f"{before:.3f}", f"{after:.3f}"),
        *(mean_over_seeds(changes).signed(), ", ".join(f"{change:+.3f}" for change in changes)),
    )


def rows(config: Config, found: Sequence[Run]) -> list[tuple[str, ...]]:
    """The lines of every task, in the order of the configuration."""
    read, lines = evaluations_of(config, found), []
    for task in found[0].config.tasks:
        names = {TOGETHER: TOGETHER, task: ALONE, CONTROL: CONTROL}
        kinds = {kind: [run for run in found if run.task == name] for name, kind in names.items()}
        kinds = {kind: some for kind, some in kinds.items() if some}
        for kind, some in kinds.items():
            curves = [held_out(run, task, run.lines) for run in some]
            lines.append(row(task, TRAINING, kind, [(c[0], c[-1]) for c in curves]))
        if task in config.samplers:
            key = reward_of(found[0], task)
            score = {
                folder: read_scores(Path(one.output_dir))[key]["mean"]
                for (name, folder), one in read.items()
                if name == task
            }
            before = score[Path(config.output_dir)]
            for kind, some in kinds.items():
                lines.append(row(task, BEST, kind, [(before, score[run.folder]) for run in some]))
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
