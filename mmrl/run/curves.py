"""Line plots as SVG, drawn by matplotlib, which is imported when a plot is drawn."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

FEW = 12
"""Points from which on a curve has no markers."""

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


@dataclass
class Series:
    """One curve: `points` (x, y) in order of x, drawn in a matplotlib `color`, or the next one, and
    in a matplotlib `linestyle`."""

    name: str
    points: list[tuple[float, float]]
    color: str | None = None
    width: float = 1.8
    opacity: float = 1.0
    linestyle: str = "-"


def line_plot(curves: Sequence[Series], x_label: str = "", y_label: str = "") -> str:
    """An SVG of curves, with a legend of the first and the last value of each that has a name.

    Equal curves give equal text. Empty where no curve has a point.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    named = sum(curve.name != "" for curve in curves)
    with matplotlib.style.context(["default", STYLE]):
        width, height = 5.2, 2.6 + 0.2 * named
        figure = Figure((width, height))
        # margins in inches: a layout engine draws each plot three times to find them
        left, right, bottom, top = 0.75, 0.1, 0.5 + 0.2 * named, 0.1
        shares = (left / width, bottom / height, 1 - (left + right) / width)
        axes = figure.add_axes((*shares, 1 - (bottom + top) / height))
        legend = {}  # its own: matplotlib leaves out names that begin with an underscore
        for curve in curves:
            style = {"color": curve.color, "linewidth": curve.width, "linestyle": curve.linestyle}
            style |= {"alpha": curve.opacity, "marker": "." if len(curve.points) < FEW else ""}
            [drawn] = axes.plot(*zip(*curve.points, strict=True), **style)
            if curve.name:
                (_, first), (_, last) = curve.points[0], curve.points[-1]
                legend[drawn] = f"{curve.name}: {first:.4g} → {last:.4g}"
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.locator_params("x", integer=True)
        if named:
            style = {"frameon": False, "borderaxespad": 0, "labelspacing": 0.3}
            figure.legend([*legend], [*legend.values()], loc="lower left", **style)
        page = io.StringIO()
        unset = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(page, format="svg", metadata=unset)
    return page.getvalue().partition("<!DOCTYPE")[2].partition(">\n")[2]
