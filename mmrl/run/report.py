"""`report.html`: one page that shows a run, readable offline and in any browser.

Curves are inline SVG and images are embedded: the page loads nothing and runs no script. It links
the reports of the runs beside it.
"""

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader

from mmrl.run.checkpoint import write_file
from mmrl.run.curves import WINDOW, Points, line_plot
from mmrl.run.metrics_file import is_number, read_metrics
from mmrl.run.report_config import ReportConfig
from mmrl.run.sample_files import choose_samples
from mmrl.run.stop_rule import StopConfig, find_standing

HELD_OUT = r"^eval/[^/]+/(?!stderr)[^/]+$"
FIGURES = {
    "Reward": r"^(.*/)?reward$",
    "Rewards by component": r"^(.*/)?rewards/[^/]+/mean$",
    "Loss": r"^(eval/)?loss$",
    "Parts of the loss": r"^loss/",
    "Held-out score": HELD_OUT,
    "Held-out score by tag": r"^eval/[^/]+/[^/]+/(?!stderr)[^/]+$",
    "Diversity of the rollouts of a prompt": r"^((?!eval/).*/)?diversity/[^/]+$",
    "Zero-variance groups": r"^(.*/)?frac_reward_zero_std$",
    "Clipped ratios": r"^(.*/)?clip_ratio/.*_mean$",
    "KL": r"^(.*/)?(kl|approx_kl)$",
    "Entropy of masked tokens": r"^(.*/)?entropy$",
    "Gradient norm": r"^grad_norm$",
    "Seconds per step": r"^(.*/)?(step_time|time/(rollout|reward|reward_wait|score|update)_s)$",
    "Seconds in rewards": r"^(.*/)?rewards/[^/]+/time_s$",
}
"""Title -> pattern of the metrics drawn together; other metrics of supervised training have a
figure each."""

COMPARED = ("Reward", "Held-out score")
"""Figures in which the curves of a control are drawn too."""
FILES = ("config.yaml", "env.txt")


def write_report(run: str | Path) -> Path:
    """Write `report.html` of a run directory from its metrics, samples and settings, if any."""
    run = Path(run)
    metrics, settings = collect_points(read_metrics(run / "metrics.jsonl")), read_settings(run)
    report = ReportConfig(**settings.get("report") or {})
    lines = read_metrics(Path(report.control).expanduser()) if report.control else []
    control = collect_points(lines)
    places = FileSystemLoader(Path(__file__).parent)
    page = Environment(loader=places, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = page.get_template("report.html.j2").render(
        name=run.name,
        headline=_headline(metrics, control, report),
        summary=[*_summary(metrics), *_best(run, settings.get("stop_on"))],
        scores=_scores(metrics),
        grids=_grids(run / "samples"),
        samples=choose_samples(run),
        figures=_figures(metrics, control),
        window=WINDOW,
        control=report.control if control else None,
        others=sorted(each.parent.name for each in run.absolute().parent.glob("*/report.html")),
        files={name: (run / name).read_text("utf-8") for name in FILES if (run / name).is_file()},
    )
    write_file(target := run / "report.html", text)
    return target


def collect_points(lines: Iterable[Mapping[str, Any]]) -> dict[str, Points]:
    """The points (step, value) of each metric.

    Values that are not finite numbers are left out; of several at one step the last is used.
    """
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for line in lines:
        for key, value in line.items():
            if key != "step" and is_number(value):
                points[key][line["step"]] = value
    return {name: sorted(values.items()) for name, values in points.items()}


def read_settings(run: Path) -> dict[str, Any]:
    """The settings of a run directory; empty without them."""
    file = run / "config.yaml"
    return (yaml.safe_load(file.read_text("utf-8")) if file.is_file() else None) or {}


def _headline(
    metrics: Mapping[str, Points], control: Mapping[str, Points], report: ReportConfig
) -> str:
    """What the run has changed, in a sentence: a held-out score before and after, of the control
    as well; empty before there are two evaluations."""
    name = report.metric or next(iter(matching(metrics, HELD_OUT)), "")
    points = metrics.get(name, ())
    if len(points) < 2:
        return ""
    form = "{:.0%} → {:.0%}" if report.said else "{:.4g} → {:.4g}"
    change = form.format(points[0][1], points[-1][1])
    other = control.get(name, ())
    beside = form.format(other[0][1], other[-1][1]) if len(other) > 1 else ""
    said = f"{change} {report.said}" if report.said else f"{name}: {change}"
    return f"{said}; the control, which cannot learn: {beside}" if beside else said


def matching(metrics: Mapping[str, Points], pattern: str) -> dict[str, Points]:
    """The metrics whose name begins with a pattern."""
    return {name: points for name, points in metrics.items() if re.match(pattern, name)}


def _summary(metrics: Mapping[str, Points]) -> list[str]:
    """A sentence on the reward or the loss over the first and the last fifth of the run."""
    sentences = []
    found = matching(metrics, FIGURES["Reward"]) or matching(metrics, "^loss$")
    for name, points in found.items():
        size, values = max(1, len(points) // 5), [value for _, value in points]
        first, last = fmean(values[:size]), fmean(values[-size:])
        said = f"{first:.3f} over the first and {last:.3f} over the last {size} of {len(points)}"
        sentences.append(f"Mean {name}: {said} logged steps.")
    return sentences


def _best(run: Path, stop_on: Mapping[str, Any] | None) -> list[str]:
    """A sentence on the end of the run by `stop_on`, or on the best evaluation so far."""
    if not stop_on:
        return []
    rule = StopConfig(**stop_on)
    found = find_standing(rule, read_metrics(run / "metrics.jsonl"))
    end, best = found.describe_end(rule), f"{found.best:.4g} at step {found.step}."
    return [f"Ended by {end}." if end else f"Best {rule.metric}: {best}"]


def _scores(metrics: Mapping[str, Points]) -> list[list[str]]:
    """A table of all held-out metrics at the first and the last evaluation; empty without any."""
    found = matching(metrics, "^eval/(?!.*/stderr$)")
    known = sorted({step for points in found.values() for step, _ in points})
    steps = list(dict.fromkeys([*known[:1], *known[-1:]]))
    compared = ["change"] * (len(steps) > 1)
    rows = [["metric", *(f"step {step}" for step in steps), *compared]] if found else []
    for name, points in sorted(found.items()):
        values = dict(points)
        errors = {n: f" ± {error:.3f}" for n, error in metrics.get(f"{name}/stderr", [])}
        cells = [f"{values[n]:.3f}{errors.get(n, '')}" if n in values else "-" for n in steps]
        if compared:
            both = "-" not in cells
            cells.append(f"{values[steps[-1]] - values[steps[0]]:+.3f}" if both else "-")
        rows.append([name.removeprefix("eval/"), *cells])
    return rows


def _grids(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """The first and the last grid of every task, of images or videos, as data URLs."""
    grids: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(folder.glob("*_*.*")):
        task, _, step = path.stem.removeprefix("eval_").rpartition("_")
        if path.suffix in (".png", ".webp") and step.isdigit():
            grids[task][int(step)] = path
    return {
        task: [(step, _embed(found[step])) for step in dict.fromkeys((min(found), max(found)))]
        for task, found in grids.items()
    }


def _embed(path: Path) -> str:
    """The address of a file that holds it."""
    data = base64.b64encode(path.read_bytes()).decode()
    return f"data:image/{path.suffix[1:]};base64,{data}"


def _figures(metrics: Mapping[str, Points], control: Mapping[str, Points]) -> dict[str, str]:
    """An SVG by title, of the metrics with more than one value, beside those of a control."""
    metrics = {name: points for name, points in metrics.items() if len(points) > 1}
    groups = {title: [*matching(metrics, pattern)] for title, pattern in FIGURES.items()}
    if not groups["Reward"] and not groups["Held-out score"]:
        drawn = {name for names in groups.values() for name in names}
        groups |= {name: [name] for name in metrics if name not in drawn}
    return {
        title: line_plot(
            {name: metrics[name] for name in names},
            {name: control[name] for name in names if title in COMPARED and control.get(name)},
        )
        for title, names in groups.items()
        if names
    }
