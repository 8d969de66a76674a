"""Shares of a step's seconds in a report: a bar and its key."""

import html
from collections.abc import Iterable
from typing import Any

from mmrl.run.metrics_file import is_number

PHASES = {
    "rollouts": ("time/rollout_s", "#4c78a8"),
    "waiting for rewards": ("time/reward_wait_s", "#f58518"),
    "scoring old and reference policy": ("time/score_s", "#54a24b"),
    "update": ("time/update_s", "#b279a2"),
}
"""Phase -> the metric of its seconds, of any task, and its colour."""
OTHER = "other: prompts, masks, evaluations and checkpoints", "#9a9a9a"


def draw_time_shares(lines: Iterable[dict[str, Any]]) -> str:
    """Mean seconds of the phases over all logged steps; empty without any.

    Seconds of tasks are added. `step_time` includes an evaluation or checkpoint before the step, so
    what no phase covers has them too.
    """
    steps = [line for line in lines if is_number(line.get("step_time"))]
    if not steps:
        return ""
    total = sum(line["step_time"] for line in steps) / len(steps)
    parts = [
        (name, sum(_seconds(line, metric) for line in steps) / len(steps), color)
        for name, (metric, color) in PHASES.items()
    ]
    rest = total - sum(seconds for _, seconds, _ in parts)
    parts = [part for part in [*parts, (OTHER[0], rest, OTHER[1])] if part[1] > 0]
    whole = sum(seconds for _, seconds, _ in parts)
    if len(parts) < 2 or whole <= 0:
        return ""
    bar = "".join(
        f'<div style="width:{100 * seconds / whole:.2f}%;background:{color}"'
        f' title="{html.escape(name)}: {seconds:.2f} s"></div>'
        for name, seconds, color in parts
    )
    rows = "".join(
        f'<tr><td><span class="key" style="background:{color}"></span>{html.escape(name)}</td>'
        f"<td>{seconds:.2f} s</td><td>{100 * seconds / whole:.1f} %</td></tr>"
        for name, seconds, color in parts
    )
    head = (
        f"<h2>Time of a step</h2><p>{total:.2f} seconds, mean over {len(steps)} logged steps.</p>"
    )
    return f'{head}<div class="bar">{bar}</div><table>{rows}</table>'


def _seconds(line: dict[str, Any], metric: str) -> float:
    """Seconds of a phase in a line, of all tasks."""
    found = (v for k, v in line.items() if k == metric or k.endswith(f"/{metric}"))
    return sum(value for value in found if is_number(value))
