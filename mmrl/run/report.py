"""`report.html`: one page that shows a run, readable offline and in any browser.

Curves are inline SVG and images are embedded: the page loads nothing and runs no script.
"""

import base64
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from mmrl.run.curves import Series, line_plot
from mmrl.run.metrics_file import is_number, read_metrics
from mmrl.run.report_samples import choose_samples
from mmrl.run.sample_files import samples_of

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
    "Reward latency (seconds)": r"^(.*/)?rewards/[^/]+/latency_s$",
}
"""Title -> pattern of the metrics drawn together; other metrics of supervised training have a
figure each."""

WINDOW = 10
"""Values in a running mean."""
FILES = ("config.yaml", "env.txt")

Points = list[tuple[float, float]]


def write_report(run: str | Path) -> Path:
    """Write `report.html` of a run directory from its metrics, samples and configuration.

    Missing parts are left out.
    """
    run = Path(run)
    lines = read_metrics(run / "metrics.jsonl")
    metrics = {curve.name: curve.points for curve in series(lines, "")}
    places = FileSystemLoader(Path(__file__).parent)
    page = Environment(loader=places, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = page.get_template("report.html.j2").render(
        name=run.name,
        summary=_summary(metrics),
        scores=_scores(metrics),
        grids=_grids(samples_of(run)),
        samples=choose_samples(run),
        figures=_figures(metrics),
        window=WINDOW,
        files={name: (run / name).read_text("utf-8") for name in FILES if (run / name).is_file()},
    )
    target, aside = run / "report.html", run / "report.html.partial"
    aside.write_text(text, encoding="utf-8")
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


def _matching(metrics: Mapping[str, Points], pattern: str) -> dict[str, Points]:
    return {name: points for name, points in metrics.items() if re.match(pattern, name)}


def _summary(metrics: Mapping[str, Points]) -> list[str]:
    """Sentences on the time of the run, and on its reward or loss."""
    found = _matching(metrics, FIGURES["Reward"]) or _matching(metrics, "^loss$")
    sentences = []
    for points in _matching(metrics, "^(step_time|time/step_s)$").values():
        steps = [0, *(step for step, _ in points)]
        # a value is the mean over the steps since the one before
        seconds = sum(value * (steps[n + 1] - steps[n]) for n, (_, value) in enumerate(points))
        took = f"{seconds / 3600:.1f} hours" if seconds >= 7200 else f"{seconds / 60:.1f} minutes"
        sentences.append(f"{steps[-1]} steps in {took} of training.")
    for name, points in found.items():
        size = max(1, len(points) // 5)
        first, last = _mean(points[:size]), _mean(points[-size:])
        said = f"{first:.3f} over the first and {last:.3f} over the last {size} of {len(points)}"
        sentences.append(f"Mean {name}: {said} logged steps.")
    return sentences


def _mean(points: Points) -> float:
    return sum(value for _, value in points) / len(points)


def _scores(metrics: Mapping[str, Points]) -> list[list[str]]:
    """A table of all held-out metrics at the first and the last evaluation; empty without any."""
    found = _matching(metrics, "^eval/(?!.*/stderr$)")
    known = sorted({step for points in found.values() for step, _ in points})
    steps = list(dict.fromkeys([*known[:1], *known[-1:]]))
    compared = ["change"] * (len(steps) > 1)
    rows = [["metric", *(f"step {step}" for step in steps), *compared]] if found else []
    for name, points in sorted(found.items()):
        values, errors = dict(points), dict(metrics.get(f"{name}/stderr", []))
        cells = [_format(values.get(step), errors.get(step)) for step in steps]
        if compared:
            known_both = steps[0] in values and steps[-1] in values
            cells.append(f"{values[steps[-1]] - values[steps[0]]:+.3f}" if known_both else "-")
        rows.append([name.removeprefix("eval/"), *cells])
    return rows


def _format(value: float | None, error: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}")


def _grids(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """The first and the last image grid of every task, as addresses that hold them."""
    grids: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(folder.glob("*_*.png")):
        task, _, step = path.stem.removeprefix("eval_").rpartition("_")
        if step.isdigit():
            grids[task][int(step)] = path
    return {
        task: [
            (step, f"data:image/png;base64,{base64.b64encode(found[step].read_bytes()).decode()}")
            for step in dict.fromkeys((min(found), max(found)))
        ]
        for task, found in grids.items()
    }


def _figures(metrics: Mapping[str, Points]) -> dict[str, str]:
    """An SVG by title, of the metrics with more than one value."""
    metrics = {name: points for name, points in metrics.items() if len(points) > 1}
    groups = {title: [*_matching(metrics, pattern)] for title, pattern in FIGURES.items()}
    if not groups["Reward"] and not groups["Held-out score"]:
        drawn = {name for names in groups.values() for name in names}
        groups |= {name: [name] for name in metrics if name not in drawn}
    return {
        title: line_plot(
            [line for n, name in enumerate(names) for line in _lines(name, metrics[name], n)],
            x_label="step",
        )
        for title, names in groups.items()
        if names
    }


def _lines(name: str, points: Points, place: int) -> Sequence[Series]:
    """A long curve as a faint line with its running mean, a short one unchanged."""
    color = f"C{place}"
    if len(points) < 4 * WINDOW:
        return [Series(name, points, color)]
    recent = [points[max(0, n - WINDOW) : n] for n in range(1, len(points) + 1)]
    means = [(some[-1][0], _mean(some)) for some in recent]
    return [Series("", points, color, 1.0, 0.35), Series(name, means, color)]
