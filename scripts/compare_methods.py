"""Every method from the same start on the same tasks: one table.

    python scripts/compare_methods.py config=configs/compare/text.yaml
    python scripts/compare_methods.py config=COMPARISON.yaml workers=1 seeds="[0]"

A run is `python -m mmrl.rl` with a task's configuration, a row of the methods and a seed, in a
process of its own on one thread. Runs that are finished are not repeated and interrupted ones go on
where they stopped, so the script may be stopped and called again. It prints the table and writes it
to `<output_dir>/table.md`. Scores are of held-out prompts: means over the seeds; the change has its
standard error over the seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tqdm import tqdm  # noqa: E402

from mmrl.algorithms import load_algorithm  # noqa: E402
from mmrl.algorithms.forwards import count_forwards  # noqa: E402
from mmrl.config import check, check_choice, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.model_config import known_config  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from mmrl.run.metrics_file import read_metrics  # noqa: E402
from mmrl.runtime.activity import Display, activity, write  # noqa: E402
from rewards.scoring.terms import key_of  # noqa: E402

CONTROL = "shuffled"
HEAD = (
    "method",
    "forwards per rollout",
    "seconds per update",
    "before",
    "after",
    "change",
)


@dataclass(kw_only=True)
class Config:
    """What to compare."""

    output_dir: str = "runs/methods"
    """Where the runs go: `<task>/<method>/<seed>`."""
    tasks: list[str] = field(default_factory=list)
    """RL configurations of one task each."""
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Columns of the table of algorithms, by the name a row gets here; laid over the task's own."""
    control: str = ""
    """The method that is also run with its advantages shuffled; empty for none."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    """Of the runs."""
    settings: list[str] = field(default_factory=list)
    """Words added to every run, such as max_steps=10."""
    workers: int = 2
    """Runs at the same time, one thread each."""

    def __post_init__(self) -> None:
        for key in ("tasks", "methods", "seeds"):
            check(bool(getattr(self, key)), key, getattr(self, key), "one or more")
        check(self.workers >= 1, "workers", self.workers, "at least 1")
        if self.control:
            check_choice("control", self.control, self.methods)


USAGE = Usage("python scripts/compare_methods.py", __doc__, Config, "compare")


class Run(NamedTuple):
    """One run: where it stands in the table, and how it is called."""

    task: str
    method: str
    folder: Path
    words: list[str]
    config: RLConfig

    @property
    def finished(self) -> bool:
        """Whether it has reached its last step."""
        return (self.folder / "final").is_dir()

    @property
    def label(self) -> str:
        """Task, method and seed."""
        return " ".join(filter(None, (self.task, self.method, f"seed {self.folder.name}")))

    @property
    def steps(self) -> int:
        """How many it has logged."""
        if self.finished:
            return self.config.max_steps
        lines = read_metrics(self.folder / "metrics.jsonl")
        return int(lines[-1]["step"]) if lines else 0


def runs(config: Config) -> list[Run]:
    """All runs, seed after seed, so that a table can be made of the first ones.

    Raises:
        ConfigError: settings of a run that cannot run.
    """
    return [
        run
        for seed in config.seeds
        for path in config.tasks
        for name in config.methods
        for run in _runs(config, path, name, seed)
    ]


def _runs(config: Config, path: str, name: str, seed: int) -> Iterator[Run]:
    """A method's run, and the control's."""
    named = load_config(RLConfig, [f"config={path}"])
    check(len(named.tasks) == 1, f"tasks of {path}", list(named.tasks), "a single task")
    [task] = named.tasks
    for label in (name, CONTROL) if name == config.control else (name,):
        folder = Path(config.output_dir) / task / label / str(seed)
        words = [
            f"config={path}",
            f"output_dir={folder}",
            f"seed={seed}",
            "resume_from_checkpoint=auto",
            f"tasks.{task}.algorithm={json.dumps(config.methods[name])}",
            *[f"tasks.{task}.shuffle_advantages=true"] * (label == CONTROL),
            *config.settings,
        ]
        yield Run(task, label, folder, words, load_config(RLConfig, words))


def execute(run: Run, running: dict[str, tuple[Run, float]]) -> None:
    """Run it in a process of its own; it stands among those that are running, with its start.

    Raises:
        RuntimeError: the process failed; with the end of what it said.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "mmrl.rl", *run.words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    write(f"started: {run.label}")
    started = time.monotonic()
    running[run.label] = run, started
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    finally:
        del running[run.label]
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}:\n{said}")
    write(f"finished: {run.label}, in {tqdm.format_interval(time.monotonic() - started)}")


def execute_all(wanted: Sequence[Run], workers: int) -> None:
    """Run those that are not finished, so many at a time; the first failure starts no further ones.

    Meanwhile the steps of all of them are shown, how long they will take, and where those that are
    running stand.
    """
    missing = [run for run in wanted if not run.finished]
    running: dict[str, tuple[Run, float]] = {}
    if not missing:
        return
    write(f"{len(missing)} of {len(wanted)} runs to do, {workers} at a time")
    total = sum(run.config.max_steps for run in missing)
    with (
        Display(),
        activity("step", total, sum(run.steps for run in missing)) as steps,
        ThreadPoolExecutor(workers) as pool,
    ):
        pending = {pool.submit(execute, run, running) for run in missing}
        try:
            while pending:
                done, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
                steps.done = sum(run.steps for run in missing)
                steps.remark = ", ".join(_standing(*one) for one in list(running.values()))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _standing(run: Run, started: float) -> str:
    return f"{run.label} {run.steps}/{run.config.max_steps} {time.monotonic() - started:.0f}s"


def row(found: Sequence[Run]) -> tuple[str, ...]:
    """The line of a method on a task, from the runs of its seeds."""
    lines = [read_metrics(run.folder / "metrics.jsonl") for run in found]
    scores = [held_out(run, run.task, some) for run, some in zip(found, lines, strict=True)]
    before, after = fmean(s[0] for s in scores), fmean(s[-1] for s in scores)
    updates = [line for some in lines for line in some if "time/update_s" in line]
    seconds = fmean(line["time/score_s"] + line["time/update_s"] for line in updates)
    return (
        found[0].method,
        f"{_forwards(found[0].config):g}",
        f"{seconds:.2f}",
        f"{before:.3f}",
        f"{after:.3f}",
        change(scores),
    )


def change(scores: Sequence[Sequence[float]]) -> str:
    """Mean of last minus first score over the seeds, with its standard error where there is one."""
    changes = [each[-1] - each[0] for each in scores]
    error = f" ± {stdev(changes) / len(changes) ** 0.5:.3f}" if len(changes) > 1 else ""
    return f"{fmean(changes):+.3f}{error}"


def held_out(run: Run, task: str, lines: list[dict[str, Any]]) -> list[float]:
    """Scores of a task's first reward in evaluations on held-out prompts, one after the other."""
    options = run.config.tasks[task]
    first = (options.eval_rewards or options.rewards)[0]
    key = f"eval/{task}/{key_of(first)}"
    found = [line[key] for line in lines if key in line]
    check(len(found) > 1, key, found, "measured before and after", "Set eval_steps.")
    return found


def _forwards(config: RLConfig) -> float:
    """Forwards of a rollout in an update, the mean over inner iterations."""
    from mmrl.rollouts.tasks import completion_length

    [options] = config.tasks.values()
    method = load_algorithm(options.algorithm)
    public = known_config(config.model.path) or {}
    length = completion_length(options, config.model, public)
    how = options.sampler.steps, length, config.passes_at_once
    each = [
        count_forwards(method, *how, n, config.num_mini_batches, public.get("block_size")).total
        for n in range(method.num_iterations)
    ]
    return fmean(each)


def table(found: Sequence[Run]) -> str:
    """Markdown: a table per task, methods in the order of the configuration."""
    parts = []
    for task in dict.fromkeys(run.task for run in found):
        methods = dict.fromkeys(run.method for run in found if run.task == task)
        rows = [
            row([run for run in found if (run.task, run.method) == (task, method)])
            for method in methods
        ]
        cells = [(f"{task}: {HEAD[0]}", *HEAD[1:]), ("---",) * len(HEAD), *rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in cells))
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Compare what the command line says; return the exit status."""

    def work() -> None:
        config = load_config(Config, arguments)
        wanted = runs(config)
        execute_all(wanted, config.workers)
        text = table(wanted)
        (Path(config.output_dir) / "table.md").write_text(text, encoding="utf-8")
        print(text, end="")

    return run_command(USAGE, arguments, work, RuntimeError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
