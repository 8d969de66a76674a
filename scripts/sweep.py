"""A study: runs x settings x seeds, with controls and choices made on validation, as one table.

    python scripts/sweep.py config=configs/sweep/sums.yaml dry_run=true
    python scripts/sweep.py config=configs/sweep/sums.yaml

First every setting gets the values of the grid that are best in a short trial on validation. Then
it runs with every seed, and so do its controls; then the evaluations in `tests` read the weights of
each run, and those of the start. Each is a command of this project in its own process. What is
finished is not repeated and interrupted runs go on, so the script may be called again.
`output_dir` gets `table.md`, `results.jsonl` and a plot of every run.
"""

import itertools
import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import ConfigError, check, check_choice, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.run.metrics_file import is_number, read_metrics  # noqa: E402

TRIAL_SEED = 1000
EVALUATIONS = ("mmrl.eval", "mmrl.eval_v")
COMMANDS = ("mmrl.rl", "mmrl.sft", *EVALUATIONS)
HEAD = ("run", "measure", "setting", "chosen", "start", "end", "change", "of each seed", "control")


@dataclass(kw_only=True)
class Run:
    """One of the commands of a study."""

    command: list[str] = field(default_factory=list)
    """mmrl.rl, mmrl.sft, mmrl.eval or mmrl.eval_v, and its words."""
    metric: str = ""
    """Its score, more is better: a key of `metrics.jsonl`, or of an evaluation that of a reward."""
    tests: dict[str, list[str]] = field(default_factory=dict)
    """Evaluations by name, of the start as they are and of every end: mmrl.eval…, and words."""


@dataclass(kw_only=True)
class Config:
    """What to run. `task.` in words and in the grid is `tasks.<name of the run>.`."""

    output_dir: str = ""
    """Where runs, table, results and plots go."""
    runs: dict[str, Run] = field(default_factory=dict)
    """What is studied, by name."""
    settings: dict[str, list[str]] = field(default_factory=dict)
    """What is compared: words added to every run, by name; none for the runs as they are."""
    controls: dict[str, list[str]] = field(default_factory=dict)
    """Words that make a control of a setting, by name, such as task.shuffle_advantages=true."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    """Of the runs and the controls."""
    grid: dict[str, list[Any]] = field(default_factory=dict)
    """Values to choose from, by key; every combination is tried for every run and setting."""
    trial: list[str] = field(default_factory=list)
    """Words added where a choice is made: validation prompts, and fewer steps."""
    launch: str = ""
    """What launches a run, such as "accelerate launch --config_file FILE"; python where empty."""
    workers: int = 1
    """Commands at the same time."""
    dry_run: bool = False
    """List the commands, and what is done, and exit."""

    def __post_init__(self) -> None:
        check(self.output_dir != "", "output_dir", self.output_dir, "a folder")
        for key in ("runs", "seeds"):
            check(bool(getattr(self, key)), key, getattr(self, key), "one or more")
        check(TRIAL_SEED not in self.seeds, "seeds", self.seeds, f"without {TRIAL_SEED}, of trials")
        check(not self.grid or self.trial != [], "trial", self.trial, "words with other prompts")
        for name, run in self.runs.items():
            check(run.metric != "", f"runs.{name}.metric", run.metric, "a key of metrics.jsonl")
            check_choice(f"runs.{name}.command", next(iter(run.command), ""), COMMANDS)
            for test, words in run.tests.items():
                check_choice(f"runs.{name}.tests.{test}", next(iter(words), ""), EVALUATIONS)


@dataclass(frozen=True)
class Job:
    """A command: its module, its words and the folder it writes into."""

    module: str
    words: list[str]
    folder: Path

    @property
    def record(self) -> Path:
        """The file of its words and seconds, beside its folder."""
        return self.folder.with_name(self.folder.name + ".json")

    @property
    def finished(self) -> bool:
        """Whether its result is there; a folder of another command is refused."""
        begun = self.record.is_file()
        if begun and json.loads(self.record.read_text())["words"] != self.words:
            advice = "Choose another output_dir for this study, or remove the folder and this file."
            raise ConfigError(f"'{self.folder}' has other words, see '{self.record}'. {advice}")
        end = self.folder / ("scores.json" if self.module in EVALUATIONS else "final")
        return begun and end.exists()

    def command(self, launch: str) -> list[str]:
        """The command line of its process."""
        begin = [*(shlex.split(launch) or [sys.executable]), "-m", self.module, *self.words]
        more = [] if self.module in EVALUATIONS else ["resume_from_checkpoint=auto"]
        return [*begin, f"output_dir={self.folder}", *more]

    def run(self, launch: str) -> None:
        """Run it to its end; what it says is in a file beside its folder."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.record.write_text(json.dumps({"words": self.words}))
        print(f"started   {self.folder}", flush=True)
        begun, log = time.monotonic(), self.record.with_suffix(".log")
        with log.open("a", encoding="utf-8") as file:
            environment, command = {"OMP_NUM_THREADS": "1", **os.environ}, self.command(launch)
            status = subprocess.run(command, stdout=file, stderr=file, env=environment).returncode
        if status:
            said = "\n".join(log.read_text(encoding="utf-8").strip().splitlines()[-5:])
            raise RuntimeError(f"{shlex.join(command)} ended with status {status}:\n{said}")
        seconds = round(time.monotonic() - begun, 1)
        self.record.write_text(json.dumps({"words": self.words, "seconds": seconds}))
        print(f"finished  {self.folder} in {seconds} s", flush=True)

    def curve(self, metric: str) -> dict[float, float]:
        """The values of a metric by step; of an evaluation the mean over its samples, at step 0."""
        if self.module not in EVALUATIONS:
            rows = read_metrics(self.folder / "metrics.jsonl")
            found = {row["step"]: row[metric] for row in rows if is_number(row.get(metric))}
        else:
            samples = json.loads((self.folder / "scores.json").read_text())["samples"]
            tables = samples.values() if isinstance(samples, dict) else [samples]
            rows = [sample.get("scores", sample) for some in tables for sample in some]
            values = [row[metric] for row in rows if is_number(row.get(metric))]
            found = {0.0: fmean(values)} if values else {}
        known = ", ".join(sorted({key for row in rows for key in row}))
        check(bool(found), "metric", metric, f"one of {known} of {self.folder}")
        return found


class Study:
    """The jobs of a configuration, and what has come of them."""

    def __init__(self, config: Config) -> None:
        self.config, self.folder = config, Path(config.output_dir)
        self.settings = config.settings or {"as_is": []}
        self.ends = {"": [], **{f"_{name}": words for name, words in config.controls.items()}}

    def job(self, run: str, name: str, words: Sequence[str], seed: int) -> Job:
        """A command of a run with further words, in a folder of this name."""
        module, *own = self.config.runs[run].command
        expanded = [
            f"tasks.{run}.{word.removeprefix('task.')}" if word.startswith("task.") else word
            for word in (*own, *words, f"seed={seed}")
        ]
        return Job(module, expanded, self.folder / run / name)

    def trials(self, run: str, setting: str) -> list[tuple[list[str], Job]]:
        """The short runs of a setting, each with the words of the grid that it tries."""
        config, found = self.config, []
        for values in itertools.product(*config.grid.values()) if config.grid else ():
            tried = [f"{key}={json.dumps(v)}" for key, v in zip(config.grid, values, strict=True)]
            words = [*self.settings[setting], *tried, *config.trial]
            job = self.job(run, f"{setting}/trials/{len(found)}", words, TRIAL_SEED)
            found.append((tried, job))
        return found

    def chosen(self, run: str, setting: str) -> list[str] | None:
        """The words of the best trial; none without a grid, None before all trials are done."""
        trials, metric = self.trials(run, setting), self.config.runs[run].metric
        if not all(job.finished for _, job in trials):
            return None
        ends = [list(job.curve(metric).values())[-1] for _, job in trials]
        return trials[ends.index(max(ends))][0] if trials else []

    def runs(self) -> Iterator[tuple[dict[str, Any], Job]]:
        """All runs whose choice has been made, each with what it is."""
        config, controls = self.config, list(self.ends)[1:]
        every = itertools.product(config.seeds, config.runs, self.settings, self.ends)
        for seed, run, setting, end in every:
            if (chosen := self.chosen(run, setting)) is not None:
                words = [*self.settings[setting], *self.ends[end], *chosen]
                control = None if end else f"{setting}{controls[0]}" if controls else ""
                about = {"run": run, "setting": setting + end, "seed": seed, "control": control}
                job = self.job(run, f"{setting}{end}/{seed}", words, seed)
                yield {**about, "chosen": " ".join(chosen)}, job

    def tests(self, run: str, trained: Job | None) -> dict[str, Job]:
        """Evaluations of the end of a run, or of the weights at the start."""
        folder = trained.folder if trained else self.folder / run / "start"
        weights = [f"model.path={folder / 'final'}"] if trained else []
        return {
            name: Job(module, [*words, *weights], folder / f"test_{name}")
            for name, (module, *words) in self.config.runs[run].tests.items()
        }

    def stages(self) -> Iterator[list[Job]]:
        """What is to be done, one stage after the other."""
        pairs = itertools.product(self.config.runs, self.settings)
        yield [job for pair in pairs for _, job in self.trials(*pair)]
        runs = list(self.runs())
        yield [job for _, job in runs]
        read = [(run, None) for run in self.config.runs] + [(one["run"], job) for one, job in runs]
        yield [job for one in read for job in self.tests(*one).values()]

    def results(self) -> Iterator[dict[str, Any]]:
        """A record for every run and measure: what it is, its words and seconds, start and end."""
        for about, job in self.runs():
            metric, run = self.config.runs[about["run"]].metric, about["run"]
            curve, about = job.curve(metric), about | json.loads(job.record.read_text())
            ends = {"start": [*curve.values()][0], "end": [*curve.values()][-1]}
            yield {**about, "measure": metric, **ends, "curve": curve}
            before, reward = self.tests(run, None), metric.rpartition("/")[2]
            for name, test in self.tests(run, job).items():
                ends = {"start": before[name].curve(reward)[0], "end": test.curve(reward)[0]}
                yield {**about, "measure": name, **ends}


def change(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Mean change over seeds and its standard error, which is nan for a single seed."""
    changes = [row["end"] - row["start"] for row in rows]
    error = stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else math.nan
    return fmean(changes), error


def table(results: Sequence[dict[str, Any]]) -> str:
    """Markdown of means over seeds; in the last column, standard errors between the changes."""
    lines, groups = [HEAD, ("---",) * len(HEAD)], {}
    for row in results:
        groups.setdefault((row["run"], row["measure"], row["setting"]), []).append(row)
    for (run, measure, setting), rows in sorted(groups.items(), key=lambda item: item[0][:2]):
        (mean, error), apart = change(rows), ""
        start, end = (f"{fmean(row[key] for row in rows):.3f}" for key in ("start", "end"))
        each = ", ".join(f"{row['end'] - row['start']:+.3f}" for row in rows)
        if control := groups.get((run, measure, rows[0]["control"])):
            noise, spread = change(control)
            apart = f"{(mean - noise) / (math.hypot(error, spread) or math.nan):+.1f}"
        cells = (run, measure, setting, rows[0]["chosen"], start, end)
        lines.append((*cells, f"{mean:+.3f} ± {error:.3f}", each, apart))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the curves of a run: its seeds thin, their mean thick, controls dashed."""
    from matplotlib.figure import Figure

    figure = Figure((6.4, 4.2), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel=rows[0]["measure"])
    for n, setting in enumerate(dict.fromkeys(row["setting"] for row in rows)):
        mine = [row for row in rows if row["setting"] == setting]
        look = f"C{n}--" if mine[0]["control"] is None else f"C{n}-"
        for row in mine:
            axes.plot([*row["curve"]], [*row["curve"].values()], look, linewidth=0.8, alpha=0.5)
        steps = sorted(set.intersection(*(set(row["curve"]) for row in mine)))
        mean = [fmean(row["curve"][step] for row in mine) for step in steps]
        axes.plot(steps, mean, look, linewidth=2.4, label=f"{setting}, mean of {len(mine)}")
    axes.legend(frameon=False)
    figure.savefig(path)


def study(arguments: Sequence[str]) -> None:
    """Do what is left of the study that a command line names, and write what came of it."""
    whole = Study(config := load_config(Config, arguments))
    for jobs in whole.stages():
        left = [job for job in jobs if not job.finished]
        if config.dry_run:
            print("\n".join(shlex.join(job.command(config.launch)) for job in left))
        else:
            with ThreadPoolExecutor(config.workers) as pool:  # after a failure none is started
                list(pool.map(lambda job: job.run(config.launch), left))
    if config.dry_run:
        return
    results = list(whole.results())
    lines = "".join(json.dumps(row) + "\n" for row in results)
    (whole.folder / "results.jsonl").write_text(lines, encoding="utf-8")
    (whole.folder / "table.md").write_text(table(results), encoding="utf-8")
    for run in config.runs:
        curves = [row for row in results if row["run"] == run and "curve" in row]
        plot(curves, whole.folder / f"{run}.svg")
    print(table(results), end="")


def main(arguments: Sequence[str]) -> int:
    """Run the study that the command line names; return the exit status."""
    usage = Usage("python scripts/sweep.py", __doc__, Config, "sweep")
    return run_command(usage, arguments, lambda: study(arguments), RuntimeError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
