"""`report.html`: one page that shows a run, readable offline and in any browser.

Curves are inline SVG, images are embedded, nothing is fetched.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmrl.curves import Series, line_plot

CURVES = {
    "Reward": r"^(.*/)?reward$",
    "Rewards by component": r"^(.*/)?rewards/[^/]+/mean$",
    "Held-out score": r"^eval/[^/]+/[^/]+$",
    "Groups without a spread of rewards": r"^(.*/)?frac_reward_zero_std$",
    "Clipped ratios": r"^(.*/)?clip_ratio/.*_mean$",
    "KL": r"^(.*/)?(kl|approx_kl)$",
    "Entropy of masked tokens": r"^(.*/)?entropy$",
    "Gradient norm": r"^grad_norm$",
    "Seconds per step": r"^(.*/)?(step_time|time/(rollout|reward|score|update)_s)$",
}
"""Title -> pattern of the metrics drawn together."""

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:1080px;
margin:2rem auto;padding:0 1rem}h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(480px,1fr));gap:1rem}
figure{margin:0;border:1px solid #ddd;border-radius:6px;padding:.6rem}
figcaption{font-weight:600;margin-bottom:.3rem}table{border-collapse:collapse}
td,th{padding:.25rem .9rem;border-bottom:1px solid #e5e5e5;text-align:right}
td:first-child,th:first-child{text-align:left}.up{color:#0a7d33}.down{color:#b3261e}
img{max-width:100%;image-rendering:pixelated}pre{background:#f6f6f6;padding:1rem;overflow:auto}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(480px,1fr));gap:1rem}
"""


def write_report(run: Path) -> Path:
    """Write `report.html` of a run directory from its metrics, samples and configuration."""
    lines = _metrics(run / "metrics.jsonl")
    body = [f"<h1>{html.escape(run.name)}</h1>", _summary(lines)]
    body += [_scores(lines), _images(run / "samples"), _plots(lines), _settings(run)]
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(run.name)}</title><style>{STYLE}</style>"
        f"<body>{''.join(body)}</body></html>\n"
    )
    target, aside = run / "report.html", run / "report.html.partial"
    aside.write_text(page, encoding="utf-8")
    os.replace(aside, target)
    return target


def _metrics(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def series(lines: Iterable[dict[str, Any]], pattern: str) -> list[Series]:
    """Every metric whose name fits, as points (step, value); nulls are left out."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in lines:
        for key, value in line.items():
            if value is not None and key != "step" and re.match(pattern, key):
                points[key].append((line["step"], value))
    return [Series(name, points[name]) for name in sorted(points)]


def _summary(lines: list[dict[str, Any]]) -> str:
    rewards = [line["reward"] for line in lines if line.get("reward") is not None]
    if not rewards:
        return "<p>No steps yet.</p>"
    seconds = sum(line.get("step_time") or 0.0 for line in lines)
    return (
        f"<p>{lines[-1]['step']} steps in {seconds / 60:.1f} minutes of training. Mean reward of"
        f" the rollouts: {rewards[0]:.3f} in the first step, {rewards[-1]:.3f} in the last.</p>"
    )


def _scores(lines: list[dict[str, Any]]) -> str:
    """Held-out scores of the first and the last evaluation, by reward and tag."""
    rows = []
    for metric in series(lines, r"^eval/[^/]+/[^/]+(/(?!stderr)[^/]+)?$"):
        first, last = metric.points[0], metric.points[-1]
        errors = {step: _at(lines, step, f"{metric.name}/stderr") for step, _ in (first, last)}
        change = last[1] - first[1]
        side = "up" if change > 0 else "down" if change < 0 else ""
        cells = [f"{v:.3f} ± {errors[s]:.3f}" for s, v in (first, last)]
        name = html.escape(metric.name.removeprefix("eval/"))
        rows.append(
            f"<tr><td>{name}</td><td>{cells[0]}</td><td>{cells[1]}</td>"
            f'<td class="{side}">{change:+.3f}</td></tr>'
        )
    if not rows:
        return ""
    head = "<tr><th>held-out prompts</th><th>before</th><th>after</th><th>change</th></tr>"
    return f"<h2>Scores</h2><table>{head}{''.join(rows)}</table><p>± is one standard error.</p>"


def _at(lines: list[dict[str, Any]], step: float, key: str) -> float:
    found = [line[key] for line in lines if line["step"] == step and line.get(key) is not None]
    return found[-1] if found else 0.0


def _images(folder: Path) -> str:
    """The first and the last image grid of every task."""
    grids: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("eval_*.png")):
        grids[path.stem.removeprefix("eval_").rsplit("_", 1)[0]].append(path)
    parts = []
    for task, paths in grids.items():
        shown = dict.fromkeys((paths[0], paths[-1]))
        figures = "".join(
            f"<figure><figcaption>step {int(path.stem.rsplit('_', 1)[1])}</figcaption>"
            f'<img alt="samples" src="data:image/png;base64,'
            f'{base64.b64encode(path.read_bytes()).decode()}"></figure>'
            for path in shown
        )
        parts.append(f'<h2>Images, {html.escape(task)}</h2><div class="pair">{figures}</div>')
    return "".join(parts)


def _plots(lines: list[dict[str, Any]]) -> str:
    figures = []
    for title, pattern in CURVES.items():
        found = series(lines, pattern)
        if found:
            plot = line_plot(found, x_label="step")
            figures.append(f"<figure><figcaption>{title}</figcaption>{plot}</figure>")
    return f'<h2>Curves</h2><div class="plots">{"".join(figures)}</div>' if figures else ""


def _settings(run: Path) -> str:
    parts = []
    for name in ("config.yaml", "env.txt"):
        if (run / name).is_file():
            text = html.escape((run / name).read_text())
            parts.append(f"<details><summary>{name}</summary><pre>{text}</pre></details>")
    return f"<h2>Settings</h2>{''.join(parts)}" if parts else ""
