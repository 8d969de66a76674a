"""Learning curves of several runs as one SVG.

    python scripts/plot_curves.py out=curves.svg metric=eval/shapes/strict \
        runs="runs/a runs/b runs/c" control="runs/shuffled"

Each run is a thin line, their mean a thick one; control runs are grey.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.run.curves import Series, line_plot  # noqa: E402
from mmrl.run.metrics_file import read_metrics  # noqa: E402
from mmrl.run.report import series  # noqa: E402

BLUE, GREY = "C0", "C7"


@dataclass(kw_only=True)
class Config:
    """What to draw."""

    runs: str = ""
    """Run directories, separated by spaces."""
    control: str = ""
    """Run directories of the control, separated by spaces."""
    metric: str = "eval/shapes/strict"
    """Name in metrics.jsonl."""
    name: str = "trained"
    """What the legend calls the runs."""
    control_name: str = "shuffled advantages"
    """What it calls the control."""
    out: str = "curves.svg"
    """The file to write, an .svg."""

    def __post_init__(self) -> None:
        drawn = Path(self.out).suffix.lower() == ".svg"
        advice = "A browser or rsvg-convert makes other formats of it."
        check(drawn, "out", self.out, "the name of an .svg file", advice)
        check(self.runs != "", "runs", self.runs, "one or more run directories")


USAGE = Usage("python scripts/plot_curves.py", __doc__, Config)


def points(run: str, metric: str) -> list[tuple[float, float]]:
    """(step, value) of a metric in a run."""
    path = Path(run) / "metrics.jsonl"
    check(path.is_file(), "runs", run, "a run directory with a metrics.jsonl")
    found = series(read_metrics(path), f"^{re.escape(metric)}$")
    check(bool(found), "metric", metric, f"a metric of {run}")
    return found[0].points


def curves(runs: list[str], metric: str, name: str, color: str) -> list[Series]:
    """Thin lines of the runs and the mean over the steps that all of them have."""
    each = [dict(points(run, metric)) for run in runs]
    shared = bool(set.intersection(*map(set, each)))
    check(shared, "runs", " ".join(runs), "runs with values at the same steps")
    return with_mean(each, name, color)


def with_mean(
    each: Sequence[Mapping[float, float]],
    name: str,
    color: str,
    thin: bool = True,
    linestyle: str = "-",
) -> list[Series]:
    """The mean of several curves over the x that all of them have, and the curves as thin lines.

    Args:
        each: value by x, of one curve or more.
        name: of the mean in the legend.
        color: of all.
        thin: whether the curves are drawn too.
        linestyle: of the mean.
    """
    shared = sorted(set.intersection(*(set(run) for run in each)))
    mean = [(x, sum(run[x] for run in each) / len(each)) for x in shared]
    lines = [Series("", sorted(run.items()), color, width=1.0, opacity=0.5) for run in each]
    label = name if len(each) == 1 else f"{name}, mean of {len(each)}"
    width = 2.6 if thin else 1.8
    return [*lines * thin, Series(label, mean, color, width, linestyle=linestyle)]


def main(arguments: list[str]) -> int:
    """Draw what the command line says; return the exit status."""

    def work() -> None:
        config = load_config(Config, arguments)
        drawn = curves(config.runs.split(), config.metric, config.name, BLUE)
        if config.control:
            control = config.control.split()
            drawn += curves(control, config.metric, config.control_name, GREY)
        Path(config.out).write_text(line_plot(drawn, "step", config.metric))
        print(config.out)

    return run_command(USAGE, arguments, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
