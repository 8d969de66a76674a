"""The page of a table, made of its records alone: the protocol, tables, curves and commands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from mmrl.config import ConfigError
from mmrl.run.curves import line_plot
from scripts.claims.records import Record
from scripts.claims.statistics import (
    Mean,
    change_at,
    errors_apart,
    mean_over_seeds,
    reached_by_all,
)
from scripts.claims.table import BEST, TRAINING, Table
from scripts.claims.table_config import SHUFFLED, START, Config
from scripts.plot_curves import with_mean

OPEN, CLOSE = "<!-- evidence: written by scripts/evidence.py -->", "<!-- end of evidence -->"
SCORES = ("method", "start", "end", "gain", "gain of each seed", "against the control")
CURVES = (
    "method",
    "chosen",
    "rollouts",
    "minutes",
    "at equal rollouts",
    "at equal seconds",
    "forwards per rollout",
    "seconds per update",
    "diversity, end / start",
)
FEW = 4
"""Rows up to which the curves of all seeds are drawn beside their mean."""
COLORS = [f"C{n}" for n in (0, 1, 2, 3, 4, 5, 6, 8, 9)]
"""Of methods; grey is that of controls."""
LINESTYLES = ("-", "--", ":")
"""Of as many methods each as there are colours."""


def page_path(table: Table) -> Path:
    """The page that a table writes."""
    return Path(table.config.page or table.out / "table.md")


def write_page(table: Table, command: str) -> Path:
    """Write the part of the page between the two comments, and its curves; the rest is kept.

    Args:
        table: with its records.
        command: that made it.

    Raises:
        ConfigError: a page without the comments.
    """
    path = page_path(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    before, after = f"# {table.config.title}\n\n", "\n"
    if path.is_file():
        before, opened, rest = path.read_text(encoding="utf-8").partition(OPEN)
        _, closed, after = rest.partition(CLOSE)
        if not (opened and closed):
            raise ConfigError(
                f"page is '{path}', which does not have the lines {OPEN!r} and {CLOSE!r}. Add them"
                " where the table belongs, or name another file."
            )
    text = "\n\n".join([OPEN, *_parts(table, command), CLOSE])
    path.write_text(f"{before}{text}{after}", encoding="utf-8")
    return path


def _parts(table: Table, command: str) -> Iterable[str]:
    yield protocol(table)
    for task in table.config.tasks:
        if not _runs(table, task):
            continue
        if len(table.config.tasks) > 1:
            yield f"## {task.capitalize()}"
        validation = table.config.tasks[task].validation
        yield f"Choices were made on `{validation}`. {_sampler_text(table, task)}".rstrip()
        for role in (BEST, TRAINING):
            if role == TRAINING or table.best_sampler(task) is not None:
                yield f"Test under the sampler {_role_text(role)}, `{table.metric(task)}`:"
                yield markdown(SCORES, score_rows(table, task, role))
        yield _equal_text(table, task)
        yield markdown(CURVES, curve_rows(table, task))
        yield _draw(table, task)
    yield f"```bash\n{command}\n```"


def protocol(table: Table) -> str:
    """How the table was made."""
    config = table.config
    finished = sum(len(_runs(table, t)) for t in config.tasks)
    lines = [
        f"{_seeds_text(config)}; means over seeds with their standard errors.",
        "Prompts of the test were read once per finished run, after every choice.",
    ]
    if any(config.grid_of(name) for name in config.methods):
        about = config.selection
        lines.append(
            f"Settings that were tried were chosen per method on validation prompts, by a run of"
            f" {about.max_steps} steps with seed {about.seed} for each."
        )
    if any(not config.grid_of(name) for name in config.methods):
        lines.append("Methods without a choice run as configured.")
    if config.controls:
        lines.append(
            f"Rows that end with `{SHUFFLED}` are controls: the same run, with advantages shuffled"
            " among the rollouts of a step. The last column of a score is the difference between"
            " the gains of a method and of its control in standard errors of that difference."
        )
    if config.max_hours is not None:
        lines.append(f"A run ends after {config.max_hours:g} hours where it is.")
    if finished < len(table.all):
        lines.append(f"**Not complete: {finished} of {len(table.all)} runs are finished.**")
    runs = [record for task in config.tasks for record in _runs(table, task)]
    machines = dict.fromkeys(r["cpu"] + (f" with {r['gpu']}" if "gpu" in r else "") for r in runs)
    if machines:
        lines.append(f"One thread each on {'; '.join(machines)}.")
    return " ".join(lines)


def _seeds_text(config: Config) -> str:
    seeds, controls = len(config.seeds), len(config.all_seeds)
    more = f", {controls} per control" if config.controls and controls != seeds else ""
    return f"{seeds} seed{'s' * (seeds > 1)} per method{more}"


def score_rows(table: Table, task: str, role: str) -> list[list[str]]:
    """A row per method: scores of test under one of the two samplers."""
    found = {m: gains(table, task, m, role) for m in table.config.rows()}
    each = {m: mean_over_seeds(list(g.values())) for m, g in found.items() if g}
    rows = []
    for method, gain in each.items():
        start, ends = (
            _start(table, task, method, role),
            list(_ends(table, task, method, role).values()),
        )
        seeds = ", ".join(f"{value:+.3f}" for value in found[method].values())
        against = _against(table, method, gain, each)
        rows.append(
            [method, f"{start:.3f}", str(mean_over_seeds(ends)), gain.signed(), seeds, against]
        )
    return rows


def _against(table: Table, method: str, gain: Mean, each: Mapping[str, Mean]) -> str:
    control = table.config.control_of(method)
    if method.endswith(SHUFFLED) or control is None or control not in each:
        return "-"
    apart = errors_apart(gain, each[control])
    return "-" if apart is None else f"{apart:+.1f}"


def gains(table: Table, task: str, method: str, role: str) -> dict[int, float]:
    """End minus start on test, by seed, of the runs that were tested under a sampler."""
    start = _start(table, task, method, role)
    if start is None:
        return {}
    return {seed: end - start for seed, end in _ends(table, task, method, role).items()}


def _ends(table: Table, task: str, method: str, role: str) -> dict[int, float]:
    seeds = table.config.seeds_of(method)
    found = {seed: _test(table, task, method, method, seed, role) for seed in seeds}
    return {seed: score for seed, score in found.items() if score is not None}


def _start(table: Table, task: str, method: str, role: str) -> float | None:
    return _test(table, task, START, method, None, role)


def _test(
    table: Table, task: str, name: str, method: str, seed: int | None, role: str
) -> float | None:
    """Score of a reading of test; None where there is none."""
    training = role == TRAINING
    sampler = table.training_sampler(task, method) if training else table.best_sampler(task)
    record = table.records.get("test", task=task, method=name, seed=seed, sampler=sampler)
    return None if record is None else record["scores"][table.metric(task)]["mean"]


def curve_rows(table: Table, task: str) -> list[list[str]]:
    """A row per method: changes on validation at equal cost, the cost, and diversity."""
    limits = {axis: reached(table, task, axis) for axis in ("rollouts", "seconds")}
    rows = []
    for method in table.config.rows():
        runs = _runs(table, task, method)
        if not runs:
            continue
        last = [run["curve"][-1] for run in runs]
        equal = [
            mean_over_seeds([change_at(points(run, axis), x) for run in runs]).signed()
            for axis, x in limits.items()
        ]
        rows.append(
            [
                method,
                _settings_text(table.chosen(task, method) or {}),
                f"{fmean(point['rollouts'] for point in last):.0f}",
                f"{fmean(point['seconds'] for point in last) / 60:.1f}",
                *equal,
                f"{fmean(run['forwards'] for run in runs):g}",
                f"{fmean(run['update_s'] for run in runs):.2f}",
                _diversity_text(runs),
            ]
        )
    return rows


def reached(table: Table, task: str, axis: str) -> float:
    """The largest number of rollouts or seconds that all runs of a task reached."""
    return reached_by_all([points(run, axis) for run in _runs(table, task)])


def points(run: Record, axis: str) -> list[tuple[float, float]]:
    """The curve of a run over steps, rollouts or seconds."""
    return [(point[axis], point["score"]) for point in run["curve"]]


def diversity_ratios(runs: Sequence[Record]) -> dict[str, Mean]:
    """End over start of every metric of diversity that all runs have, as a mean over seeds."""
    keys = set.intersection(*(set(run["diversity"]) for run in runs))
    pairs = {key: [run["diversity"][key] for run in runs] for key in sorted(keys)}
    return {
        key: mean_over_seeds([end / start for start, end in each])
        for key, each in pairs.items()
        if all(start for start, _ in each)
    }


def _diversity_text(runs: Sequence[Record]) -> str:
    ratios = diversity_ratios(runs)
    return ", ".join(f"{k.removeprefix('diversity/')} {r}" for k, r in ratios.items()) or "-"


def _runs(table: Table, task: str, method: str | None = None) -> list[Record]:
    found = [
        table.run_record(t, m, s) for t, m, s in table.all if t == task and method in (None, m)
    ]
    return [record for record in found if record is not None]


def _sampler_text(table: Table, task: str) -> str:
    record = table.records.get("sampler", task=task)
    if record is None:
        return ""
    best = max(record["tried"], key=lambda each: each["mean"])
    return (
        f"The best of {len(record['tried'])} samplers for the starting weights:"
        f" {_settings_text(record['chosen'])}, with {best['mean']:.3f} ± {best['stderr']:.3f} on"
        " validation."
    )


def _role_text(role: str) -> str:
    return "of training" if role == TRAINING else "that was best for the starting weights"


def _equal_text(table: Table, task: str) -> str:
    rollouts, seconds = (reached(table, task, axis) for axis in ("rollouts", "seconds"))
    return (
        f"Changes on validation, under the sampler of evaluations, at {rollouts:.0f} rollouts and"
        f" at {seconds:.0f} seconds of training, which all runs reached:"
    )


def _settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}={value}`" for key, value in settings.items()) or "-"


def _draw(table: Table, task: str) -> str:
    """Draw the curves on validation; the line of the page that shows them."""
    page = page_path(table)
    image = page.parent.parent / "images" / f"evidence_{page.stem}_{task}.svg"
    rows = [m for m in table.config.rows() if _runs(table, task, m)]
    trained, drawn = [m for m in rows if not m.endswith(SHUFFLED)], []
    for method in rows:
        color, linestyle = "C7", "-"  # of a control
        if method in trained:
            again, place = divmod(trained.index(method), len(COLORS))
            color, linestyle = COLORS[place], LINESTYLES[again % len(LINESTYLES)]
        each = [dict(points(run, "rollouts")) for run in _runs(table, task, method)]
        drawn += with_mean(each, method, color, thin=len(rows) <= FEW, linestyle=linestyle)
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_text(line_plot(drawn, "rollouts", f"{table.metric(task)} on validation"))
    where = Path(os.path.relpath(image, page.parent)).as_posix()
    return f"![Scores of {task} on validation over rollouts, by method]({where})"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
