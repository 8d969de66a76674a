"""Line plots as inline SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

COLORS = ("#1f5fbf", "#c4501b", "#1b8a5a", "#8a3fb0", "#b08a00", "#4a4a4a", "#c02670", "#008a9a")
WIDTH, HEIGHT = 520, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 12, 40


@dataclass
class Series:
    """One curve: `points` (x, y) in order of x; `style` dash pattern and `group` colour of it."""

    name: str
    points: list[tuple[float, float]]
    color: str | None = None
    width: float = 1.8
    opacity: float = 1.0


def line_plot(curves: Sequence[Series], x_label: str = "", y_label: str = "") -> str:
    """An SVG of curves with axes, ticks, a legend and the last value of each."""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points if math.isfinite(y)]
    if not ys:
        return ""
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    named = [curve for curve in curves if curve.name]
    height = HEIGHT + 18 * len(named)

    def place(x: float, y: float) -> tuple[float, float]:
        u = (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        v = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return LEFT + u * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - v * (HEIGHT - TOP - BOTTOM)

    parts = [_axes(x_ticks, y_ticks, place, x_label, y_label)]
    for n, curve in enumerate(curves):
        color = curve.color or COLORS[n % len(COLORS)]
        dots = [place(x, y) for x, y in curve.points if math.isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}"'
            f' stroke-width="{curve.width}" stroke-opacity="{curve.opacity}"/>'
        )
        if len(dots) < 12:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{color}"/>' for x, y in dots
            ]
    for n, curve in enumerate(named):
        color = curve.color or COLORS[curves.index(curve) % len(COLORS)]
        parts.append(_legend(n, curve, color))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="100%"'
        f' font-family="system-ui,sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>'
    )


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers that cover [low, high]."""
    if high - low < 1e-12 * max(1.0, abs(high)):
        margin = abs(high) * 0.1 or 1.0
        low, high = low - margin, high + margin
    rough = (high - low) / count
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]


def _axes(x_ticks: list[float], y_ticks: list[float], place, x_label: str, y_label: str) -> str:
    parts = []
    for y in y_ticks:
        left, level = place(x_ticks[0], y)
        parts.append(
            f'<line x1="{left}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"'
            ' stroke="#e4e4e4"/>'
            f'<text x="{left - 6}" y="{level + 4:.1f}" text-anchor="end">{y:g}</text>'
        )
    for x in x_ticks:
        across, base = place(x, y_ticks[0])
        parts.append(
            f'<text x="{across:.1f}" y="{base + 16:.1f}" text-anchor="middle">{x:g}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(x_label)}</text>'
    )
    if y_label:
        parts.append(
            f'<text transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
            f"{html.escape(y_label)}</text>"
        )
    return "".join(parts)


def _legend(n: int, curve: Series, color: str) -> str:
    level = HEIGHT + 12 + 18 * n
    first, last = curve.points[0][1], curve.points[-1][1]
    label = html.escape(f"{curve.name}: {first:.4g} → {last:.4g}")
    return (
        f'<line x1="{LEFT}" x2="{LEFT + 18}" y1="{level - 4}" y2="{level - 4}" stroke="{color}"'
        f' stroke-width="2.5"/><text x="{LEFT + 24}" y="{level}">{label}</text>'
    )
