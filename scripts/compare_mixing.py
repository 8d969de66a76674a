"""One policy trained on several tasks at once, beside a policy for each: one table.

    python scripts/compare_mixing.py run=configs/rl/unified_shapes.yaml
    python scripts/compare_mixing.py run=configs/rl/unified_shapes.yaml seeds="[0]" workers=1

For every seed the configuration runs as it is, and once more for each task with the others left
out: the same rollouts and steps for the task, the same settings. Runs are processes of their own on
one thread; finished ones are not repeated and interrupted ones go on where they stopped. The table
is printed and written to `<output_dir>/table.md`. Scores are of held-out prompts, means over the
seeds; changes have their standard error over the seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from scripts.claims.jobs import execute_all  # noqa: E402
from scripts.claims.planned_runs import Run, held_out  # noqa: E402
from scripts.claims.statistics import mean_over_seeds  # noqa: E402

TOGETHER = "together"
HEAD = ("task", "before", "after, together", "change", "after, alone", "change")


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

    def __post_init__(self) -> None:
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


def row(task: str, found: Sequence[Run]) -> tuple[str, ...]:
    """The line of a task, from the runs of all seeds."""
    together, alone = (
        [held_out(run, task, run.lines) for run in found if run.task == name]
        for name in (TOGETHER, task)
    )
    means = [fmean(some) for some in zip(*[(s[0], s[-1]) for s in together], strict=True)]
    return (
        task,
        *(f"{mean:.3f}" for mean in means),
        _change(together),
        f"{fmean(scores[-1] for scores in alone):.3f}",
        _change(alone),
    )


def _change(scores: Sequence[Sequence[float]]) -> str:
    """Mean of last minus first score over the seeds, with its standard error."""
    return mean_over_seeds([each[-1] - each[0] for each in scores]).signed()


def table(found: Sequence[Run]) -> str:
    """Markdown: a line per task, in the order of the configuration."""
    rows = [row(task, found) for task in found[0].config.tasks]
    cells = [HEAD, ("---",) * len(HEAD), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def main(arguments: Sequence[str]) -> int:
    """Compare what the command line says; return the exit status."""

    def work() -> None:
        config = load_config(Config, arguments)
        wanted = runs(config)
        execute_all([run.job() for run in wanted if not run.finished], config.workers)
        text = table(wanted)
        (Path(config.output_dir) / "table.md").write_text(text, encoding="utf-8")
        print(text, end="")

    return run_command(USAGE, arguments, work, RuntimeError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
