"""Several runs beside each other: curves, held-out scores by tag, differences of their settings."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.config.settings import flatten
from mmrl.demo.run_files import read_settings
from mmrl.run.curves import Series, line_plot
from mmrl.run.metrics_file import read_metrics
from mmrl.run.report import CURVES, SCORE, SUPERVISED, series

FIGURES = {**CURVES, **SUPERVISED}
"""Title of a group of metrics -> pattern of their names."""
MOST_FIGURES = 24

Lines = list[dict[str, Any]]


def read_runs(runs: Mapping[str, Path]) -> dict[str, Lines]:
    """The metrics of runs by their short name."""
    return {name: read_metrics(path / "metrics.jsonl") for name, path in short(runs).items()}


def short(runs: Mapping[str, Path]) -> dict[str, Path]:
    """Runs by the names of their directories; by their paths where two have the same."""
    names = [path.name for path in runs.values()]
    return {
        path.name if names.count(path.name) == 1 else whole: path for whole, path in runs.items()
    }


def by_short_name(runs: Mapping[str, Path]) -> list[tuple[str, str]]:
    """What a list of runs offers: names as they are shown, and the keys of `runs`."""
    return list(zip(short(runs), runs, strict=True))


def overlay(runs: Mapping[str, Lines], titles: Sequence[str]) -> dict[str, list[Series]]:
    """For each metric of the chosen groups, the curves of all runs that have it.

    Args:
        runs: lines of metrics by run.
        titles: keys of `FIGURES`.
    """
    found: dict[str, list[Series]] = {}
    for title in titles:
        for place, (name, lines) in enumerate(runs.items()):
            for metric in series(lines, FIGURES[title]):
                curve = Series(name, metric.points, f"C{place}")
                found.setdefault(metric.name, []).append(curve)
    return found


def draw_curves(runs: Mapping[str, Lines], titles: Sequence[str]) -> str:
    """Figures of the chosen groups as HTML, a figure for each metric and a line for each run."""
    figures, found = [], overlay(runs, titles)
    for metric, curves in list(found.items())[:MOST_FIGURES]:
        safe = [Series(c.name.replace("$", r"\$"), c.points, c.color) for c in curves]
        caption = f"<figcaption>{html.escape(metric)}</figcaption>"
        figures.append(f"<figure>{caption}{line_plot(safe, x_label='step')}</figure>")
    if not figures:
        return "<p>No such metrics.</p>"
    rest = len(found) - len(figures)
    note = f"<p>{rest} more metrics; choose fewer groups to see them.</p>" if rest else ""
    return f'<div class="curves">{"".join(figures)}</div>{note}'


def score_rows(runs: Mapping[str, Lines]) -> list[list[str]]:
    """First and last held-out score by task, reward and tag, and a column for each run."""
    names: dict[str, dict[str, str]] = {}
    for run, lines in runs.items():
        errors = {s.name: dict(s.points) for s in series(lines, r"^eval/.*/stderr$")}
        for metric in series(lines, SCORE):
            (_, first), (step, last) = metric.points[0], metric.points[-1]
            error = errors.get(f"{metric.name}/stderr", {}).get(step)
            shown = f"{first:.3f} → {last:.3f}" + ("" if error is None else f" ± {error:.3f}")
            names.setdefault(metric.name, {})[run] = shown
    rows = [[_label(name), *(found.get(run, "") for run in runs)] for name, found in names.items()]
    return [["held-out score: first → last ± standard error", *runs], *sorted(rows)] if rows else []


def _label(metric: str) -> str:
    _, task, reward, *tag = metric.split("/")
    return f"{task}, {reward}: {tag[0] if tag else 'all prompts'}"


def setting_rows(runs: Mapping[str, Path]) -> list[list[str]]:
    """The settings in which runs differ: key, and the value of each run."""
    flat = {name: dict(flatten(read_settings(path))) for name, path in short(runs).items()}
    keys = dict.fromkeys(key for settings in flat.values() for key in settings)
    rows = [[key, *(repr(s[key]) if key in s else "" for s in flat.values())] for key in keys]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    return [["setting", *flat], *differing] if differing else []


def table(rows: Sequence[Sequence[str]], empty: str) -> str:
    """Rows as an HTML table, the first as its head; `empty` where there are none."""
    if not rows:
        return f"<p>{html.escape(empty)}</p>"
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:]
    )
    return f"<table><tr>{head}</tr>{body}</table>"


STYLE = """
.curves {display: grid; grid-template-columns: repeat(auto-fill, minmax(420px, 1fr)); gap: 1rem}
.curves figure {margin: 0; padding: .5rem; border: 1px solid var(--border-color-primary)}
.curves svg {width: 100%; height: auto}
.curves svg text {fill: var(--body-text-color) !important}
.curves svg [style*="fill: #ffffff"] {fill: none !important}
.curves svg [style*="stroke: #000000"] {stroke: var(--body-text-color-subdued) !important}
.curves svg [style*="stroke: #e4e4e4"] {stroke: var(--border-color-primary) !important}
.prose table :is(td, th) {border-color: var(--border-color-primary)}
.completions {display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr));
 gap: .8rem}
.completions > div {border: 1px solid var(--border-color-primary); border-radius: 6px;
 padding: .5rem; font-size: .8rem; overflow-wrap: anywhere}
.completions b, .completions img {display: block}
.completions p {margin: .3rem 0 0}
.completions pre {margin: .3rem 0; white-space: pre-wrap; max-height: 16em; overflow: auto}
"""
