"""`report.html`: one page that shows a run, readable offline and in any browser.

Curves are inline SVG and images are embedded: the page loads nothing and runs no script.
"""

import base64
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader

from mmrl.run.curves import WINDOW, Points, line_plot
from mmrl.run.metrics_file import is_number, read_metrics
from mmrl.run.sample_files import choose_samples
from mmrl.run.stop_rule import StopConfig, find_standing

FIGURES = {
    "Reward": r"^(.*/)?reward$",
    "Rewards by component": r"^(.*/)?rewards/[^/]+/mean$",
    "Loss": r"^(eval/)?loss$",
    "Parts of the loss": r"^loss/",
    "Held-out score": r"^eval/[^/]+/[^/]+$",
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

FILES = ("config.yaml", "env.txt")


def write_report(run: str | Path) -> Path:
    """Write `report.html` of a run directory from its metrics, samples and settings, if any."""
    run = Path(run)
    metrics = collect_points(read_metrics(run / "metrics.jsonl"))
    places = FileSystemLoader(Path(__file__).parent)
    page = Environment(loader=places, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = page.get_template("report.html.j2").render(
        name=run.name,
        summary=[*_summary(metrics), *_best(run)],
        scores=_scores(metrics),
        grids=_grids(run / "samples"),
        samples=choose_samples(run),
        figures=_figures(metrics),
        window=WINDOW,
        files={name: (run / name).read_text("utf-8") for name in FILES if (run / name).is_file()},
    )
    target, aside = run / "report.html", run / "report.html.partial"
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, target)
    return target


def collect_points(lines: Iterable[dict[str, Any]]) -> dict[str, Points]:
    """The points (step, value) of each metric.

    Values that are not finite numbers are left out; of several at one step the last is used.
    """
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for line in lines:
        for key, value in line.items():
            if key != "step" and is_number(value):
                points[key][line["step"]] = value
    return {name: sorted(values.items()) for name, values in points.items()}


def _matching(metrics: Mapping[str, Points], pattern: str) -> dict[str, Points]:
    return {name: points for name, points in metrics.items() if re.match(pattern, name)}


def _summary(metrics: Mapping[str, Points]) -> list[str]:
    """A sentence on the reward or the loss over the first and the last fifth of the run."""
    sentences = []
    found = _matching(metrics, FIGURES["Reward"]) or _matching(metrics, "^loss$")
    for name, points in found.items():
        size, values = max(1, len(points) // 5), [value for _, value in points]
        first, last = fmean(values[:size]), fmean(values[-size:])
        said = f"{first:.3f} over the first and {last:.3f} over the last {size} of {len(points)}"
        sentences.append(f"Mean {name}: {said} logged steps.")
    return sentences


def _best(run: Path) -> list[str]:
    """A sentence on the end of the run by `stop_on`, or on the best evaluation so far."""
    file = run / "config.yaml"
    rule = yaml.safe_load(file.read_text("utf-8")).get("stop_on") if file.is_file() else None
    if not rule:
        return []
    rule = StopConfig(**rule)
    found = find_standing(rule, read_metrics(run / "metrics.jsonl"))
    end, best = found.describe_end(rule), f"{found.best:.4g} at step {found.step}."
    return [f"Ended by {end}." if end else f"Best {rule.metric}: {best}"]


def _scores(metrics: Mapping[str, Points]) -> list[list[str]]:
    """A table of all held-out metrics at the first and the last evaluation; empty without any."""
    found = _matching(metrics, "^eval/(?!.*/stderr$)")
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
    """The first and the last grid of every task, of images or videos, as addresses that hold
    them."""
    grids: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(folder.glob("*_*.*")):
        if path.suffix not in (".png", ".webp"):
            continue
        task, _, step = path.stem.removeprefix("eval_").rpartition("_")
        if step.isdigit():
            grids[task][int(step)] = path
    return {
        task: [(step, _embed(found[step])) for step in dict.fromkeys((min(found), max(found)))]
        for task, found in grids.items()
    }


def _embed(path: Path) -> str:
    """The address of a file that holds it."""
    data = base64.b64encode(path.read_bytes()).decode()
    return f"data:image/{path.suffix[1:]};base64,{data}"


def _figures(metrics: Mapping[str, Points]) -> dict[str, str]:
    """An SVG by title, of the metrics with more than one value."""
    metrics = {name: points for name, points in metrics.items() if len(points) > 1}
    groups = {title: [*_matching(metrics, pattern)] for title, pattern in FIGURES.items()}
    if not groups["Reward"] and not groups["Held-out score"]:
        drawn = {name for names in groups.values() for name in names}
        groups |= {name: [name] for name in metrics if name not in drawn}
    return {
        title: line_plot({name: metrics[name] for name in names})
        for title, names in groups.items()
        if names
    }
