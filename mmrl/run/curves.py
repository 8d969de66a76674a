"""Curves of metrics as SVG, drawn by matplotlib, which is imported when a plot is drawn."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

Points = Sequence[tuple[float, float]]
"""(step, value), in order of steps."""
FEW, WINDOW = 12, 10
"""Points from which on a curve has no markers, and those of a running mean."""
STYLE = {
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": "#e4e4e4",
    "svg.fonttype": "none",  # text stays text: it can be searched, and the file is small
    "text.parse_math": False,  # a name with a $ is no formula
    "svg.hashsalt": "mmrl",  # the same curves give the same ids
}


def line_plot(curves: Mapping[str, Points], control: Mapping[str, Points] | None = None) -> str:
    """An SVG of curves by name, with a legend of the first and the last value of each; a long curve
    is drawn as its running mean over its faint values. A `control` has those of another run by the
    same names, which are dashed. Equal curves give equal text."""
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", STYLE]):
        lines = [(name, points, f"C{n}", "-") for n, (name, points) in enumerate(curves.items())]
        for name, points in (control or {}).items():
            lines.append((f"control, {name}", points, f"C{[*curves].index(name)}", ":"))
        width, height, legend_height = 5.2, 2.6 + 0.2 * len(lines), 0.5 + 0.2 * len(lines)
        figure, legend = Figure((width, height)), {}
        # margins in inches: a layout engine draws each plot three times to find them
        place = 0.75 / width, legend_height / height, 1 - 0.85 / width
        axes = figure.add_axes((*place, 1 - (legend_height + 0.1) / height))
        for name, points, color, dashes in lines:
            style: dict[str, Any] = {"color": color, "linestyle": dashes}
            style["marker"] = "." if len(points) < FEW else ""
            if len(points) >= 4 * WINDOW:
                axes.plot(*zip(*points, strict=True), **style, alpha=0.35, linewidth=1.0)
                points = _running_means(points)
            [drawn] = axes.plot(*zip(*points, strict=True), **style, linewidth=1.8)
            legend[drawn] = f"{name}: {points[0][1]:.4g} → {points[-1][1]:.4g}"
        axes.set(xlabel="step")
        axes.locator_params("x", integer=True)
        # built by hand: matplotlib leaves out names that begin with an underscore
        look: dict[str, Any] = {"frameon": False, "borderaxespad": 0, "labelspacing": 0.3}
        figure.legend([*legend], [*legend.values()], loc="lower left", **look)
        page = io.StringIO()
        unset = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(page, format="svg", metadata=unset)
    return page.getvalue().partition("<!DOCTYPE")[2].partition(">\n")[2]


def _running_means(points: Points) -> Points:
    recent = [points[max(0, n - WINDOW) : n] for n in range(1, len(points) + 1)]
    return [(some[-1][0], sum(value for _, value in some) / len(some)) for some in recent]
