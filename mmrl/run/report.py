"""`report.html`: one page that shows a run, readable offline and in any browser.

Curves are inline SVG and images are embedded: the page loads nothing and runs no script.
"""

import base64
import html
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmrl.run.curves import Series, line_plot
from mmrl.run.metrics_file import is_number, read_metrics
from mmrl.run.report_samples import draw_samples
from mmrl.run.report_style import STYLE
from mmrl.run.sample_files import samples_of

CURVES = {
    "Reward": r"^(.*/)?reward$",
    "Rewards by component": r"^(.*/)?rewards/[^/]+/mean$",
    "Held-out score": r"^eval/[^/]+/[^/]+$",
    "Diversity of the rollouts of a prompt": r"^((?!eval/).*/)?diversity/[^/]+$",
    "Zero-variance groups": r"^(.*/)?frac_reward_zero_std$",
    "Clipped ratios": r"^(.*/)?clip_ratio/.*_mean$",
    "KL": r"^(.*/)?(kl|approx_kl)$",
    "Entropy of masked tokens": r"^(.*/)?entropy$",
    "Gradient norm": r"^grad_norm$",
    "Seconds per step": r"^(.*/)?(step_time|time/(rollout|reward|reward_wait|score|update)_s)$",
    "Reward latency (seconds)": r"^(.*/)?rewards/[^/]+/latency_s$",
}
"""Title -> pattern of the metrics drawn together in a report of reinforcement learning."""

SUPERVISED = {"Loss": r"^(eval/)?loss$", "Parts of the loss": r"^loss/"}
"""The same for supervised training, whose other metrics have a figure each."""

SCORE = r"^eval/[^/]+/[^/]+(/(?!stderr)[^/]+)?$"
"""Metrics that are held-out scores, of all prompts and of a tag."""

WINDOW = 10
"""Values in a running mean."""


def write_report(run: str | Path) -> Path:
    """Write `report.html` of a run directory from its metrics, samples and configuration.

    Missing parts are left out.
    """
    run = Path(run)
    lines = read_metrics(run / "metrics.jsonl")
    body = [f"<h1>{html.escape(run.name)}</h1>", _summary(lines)]
    body += [_scores(lines), _held_out(lines), _images(samples_of(run)), draw_samples(run)]
    body += [_plots(lines), _settings(run)]
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(run.name)}</title><style>{STYLE}</style>"
        f"<body>{''.join(body)}</body></html>\n"
    )
    target, aside = run / "report.html", run / "report.html.partial"
    aside.write_text(page, encoding="utf-8")
    os.replace(aside, target)
    return target


def series(lines: Iterable[dict[str, Any]], pattern: str) -> list[Series]:
    """Collect the metrics whose names match, as points (step, value).

    Values that are not finite numbers are left out; of several at one step the last is used.
    """
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for line in lines:
        for key, value in line.items():
            if key != "step" and is_number(value) and re.match(pattern, key):
                points[key][line["step"]] = value
    return [Series(name, sorted(points[name].items())) for name in points]


def _summary(lines: list[dict[str, Any]]) -> str:
    found = series(lines, CURVES["Reward"]) or series(lines, "^loss$")
    if not found:
        return "<p>No steps yet.</p>"
    seconds = sum(
        _total_seconds(metric.points) for metric in series(lines, "^(step_time|time/step_s)$")
    )
    sentences = [f"{lines[-1]['step']} steps in {_format_duration(seconds)} of training."]
    for metric in found:
        points = metric.points
        size = max(1, len(points) // 5)
        first, last = _mean(points[:size]), _mean(points[-size:])
        said = f"{first:.3f} over the first and {last:.3f} over the last {size} of {len(points)}"
        said = said if len(points) > 1 else f"{last:.3f} over the only one of the"
        sentences.append(f"{_meaning(metric.name)}: {said} logged steps.")
    return f"<p>{' '.join(sentences)}</p>"


def _meaning(metric: str) -> str:
    if metric == "loss":
        return "Mean loss"
    task = metric.removesuffix("reward").strip("/")
    return f"Mean reward of the rollouts{f' of {html.escape(task)}' if task else ''}"


def _total_seconds(points: list[tuple[float, float]]) -> float:
    """Seconds of all steps; a line has the mean over the steps since the line before."""
    steps = [0, *(step for step, _ in points)]
    return sum(value * (steps[n + 1] - steps[n]) for n, (_, value) in enumerate(points))


def _mean(points: list[tuple[float, float]]) -> float:
    return sum(value for _, value in points) / len(points)


def _format_duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 7200 else f"{seconds / 60:.1f} minutes"


def _scores(lines: list[dict[str, Any]]) -> str:
    """Tables of held-out scores in the first and the last evaluation, by reward and tag."""
    tables = defaultdict(list)
    for metric in series(lines, SCORE):
        _, task, reward, *tag = metric.name.split("/")
        tables[task, reward].append((tag[0] if tag else "", metric))
    parts = []
    for (task, reward), rows in tables.items():
        steps = sorted({metric.points[place][0] for _, metric in rows for place in (0, -1)})
        head = "".join(f"<th>step {step}</th>" for step in dict.fromkeys((steps[0], steps[-1])))
        head += "<th>change</th>" if len(steps) > 1 else ""
        ordered = sorted(rows, key=lambda row: row[0] == "")
        body = "".join(
            _score_row(tag or "all prompts", metric, lines, len(steps) > 1)
            for tag, metric in ordered
        )
        title = f"<th>{html.escape(task)}: {html.escape(reward)}</th>"
        parts.append(f"<table><tr>{title}{head}</tr>{body}</table><br>")
    if not parts:
        return ""
    note = '<p class="note">On held-out prompts; ± is one standard error.</p>'
    return f"<h2>Scores</h2>{''.join(parts)}{note}"


def _score_row(name: str, metric: Series, lines: list[dict[str, Any]], compared: bool) -> str:
    """A row of a table: the first score and, if there are several, the last and the change."""
    beside = series(lines, f"^{re.escape(metric.name)}/stderr$")
    errors = dict(beside[0].points) if beside else {}
    first, last = metric.points[0], metric.points[-1]
    shown = (first, last) if compared else (first,)
    cells = [f"{v:.3f} ± {errors[s]:.3f}" if s in errors else f"{v:.3f}" for s, v in shown]
    row = "mean" if name == "all prompts" else "part"
    found = "".join(f"<td>{cell}</td>" for cell in (html.escape(name), *cells))
    if compared:
        change = last[1] - first[1]
        side = "up" if change > 0 else "down" if change < 0 else ""
        found += f'<td class="{side}">{change:+.3f}</td>'
    return f'<tr class="{row}">{found}</tr>'


def _held_out(lines: list[dict[str, Any]]) -> str:
    """A table of supervised metrics in the first and the last evaluation."""
    rows = ""
    for metric in series(lines, "^eval/[^/]+$"):
        (start, before), (end, after) = metric.points[0], metric.points[-1]
        name = html.escape(metric.name.removeprefix("eval/"))
        rows += f"<tr><td>{name}</td><td>step {start}: {before:.4g}</td>"
        rows += f"<td>step {end}: {after:.4g}</td></tr>" if end != start else "<td></td></tr>"
    return f"<h2>Held-out metrics</h2><table>{rows}</table>" if rows else ""


def _images(folder: Path) -> str:
    """The first and the last image grid of every task."""
    grids: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for path in folder.glob("*_*.png"):
        task, _, step = path.stem.removeprefix("eval_").rpartition("_")
        if step.isdigit():
            grids[task].append((int(step), path))
    parts = []
    for task, found in sorted(grids.items()):
        shown = dict.fromkeys((min(found), max(found)))
        figures = "".join(
            f"<figure><figcaption>step {step}</figcaption>"
            f'<img alt="samples at step {step}" src="data:image/png;base64,'
            f'{base64.b64encode(path.read_bytes()).decode()}"></figure>'
            for step, path in shown
        )
        title = f"<h2>Images: {html.escape(task)}</h2>"
        parts.append(f'<div class="task">{title}{figures}</div>')
    return "".join(parts)


def _plots(lines: list[dict[str, Any]]) -> str:
    rewarded = bool(series(lines, CURVES["Reward"]) or series(lines, CURVES["Held-out score"]))
    groups = _reinforced(lines) if rewarded else _supervised(lines)
    long_enough = {
        title: kept
        for title, found in groups.items()
        if (kept := [curve for curve in found if len(curve.points) > 1])
    }
    if not long_enough:
        return ""
    figures = "".join(_figure(title, found) for title, found in long_enough.items())
    note = "Each legend shows the first and the last value."
    if any(_is_smoothed(curve) for found in long_enough.values() for curve in found):
        smoothed = f"Faint lines are single values, strong lines running means over {WINDOW} values"
        note = f"{smoothed}. {note}"
    return f'<h2>Curves</h2><div class="plots">{figures}</div><p class="note">{note}</p>'


def _reinforced(lines: list[dict[str, Any]]) -> dict[str, list[Series]]:
    """Curves by the title of their figure; those of tags follow the held-out score."""
    groups: dict[str, list[Series]] = {}
    for title, pattern in CURVES.items():
        groups[title] = series(lines, pattern)
        if title == "Held-out score":
            for metric in series(lines, r"^eval/[^/]+/[^/]+/(?!stderr)[^/]+$"):
                _, task, reward, tag = metric.name.split("/")
                of_tags = groups.setdefault(f"Held-out score by tag: {task}, {reward}", [])
                of_tags.append(Series(tag, metric.points))
    return groups


def _supervised(lines: list[dict[str, Any]]) -> dict[str, list[Series]]:
    groups = {title: series(lines, pattern) for title, pattern in SUPERVISED.items()}
    drawn = {curve.name for found in groups.values() for curve in found}
    return groups | {c.name: [c] for c in series(lines, "") if c.name not in drawn}


def _figure(title: str, found: list[Series]) -> str:
    drawn = [line for n, curve in enumerate(found) for line in _smoothed(curve, n)]
    plot = line_plot(drawn, x_label="step")
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{plot}</figure>"


def _is_smoothed(curve: Series) -> bool:
    return len(curve.points) >= 4 * WINDOW


def _smoothed(curve: Series, place: int) -> list[Series]:
    """A long curve as a faint line with its running mean, a short one unchanged."""
    color, points = f"C{place}", curve.points
    if not _is_smoothed(curve):
        return [Series(curve.name, points, color)]
    means = [
        (step, _mean(points[max(0, n + 1 - WINDOW) : n + 1])) for n, (step, _) in enumerate(points)
    ]
    return [Series("", points, color, 1.0, 0.35), Series(curve.name, means, color)]


def _settings(run: Path) -> str:
    parts = []
    for name in ("config.yaml", "env.txt"):
        if (run / name).is_file():
            text = html.escape((run / name).read_text(encoding="utf-8"))
            parts.append(f"<details><summary>{name}</summary><pre>{text}</pre></details>")
    return f"<h2>Settings</h2>{''.join(parts)}" if parts else ""
