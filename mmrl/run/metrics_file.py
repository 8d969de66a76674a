"""`metrics.jsonl` of a run, one JSON object per line with its `step`; means between its lines."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor, as_tensor, float64


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines in order of steps, without those that a kill has truncated."""
    if not path.is_file():
        return []
    lines = [_read_line(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return sorted((line for line in lines if line), key=lambda line: line["step"])


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def _read_line(text: str) -> dict[str, Any]:
    """The object of a line; empty where it is not readable or has no step."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) and is_number(line.get("step")) else {}


class MetricWindow:
    """Running sums of scalars, kept on their device until the means are taken."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor | float] = defaultdict(float)
        self.counts: dict[str, int] = defaultdict(int)

    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Add the values of one step; a metric may be absent in some steps."""
        for name, value in values.items():
            self.sums[name] += as_tensor(value).detach().to(float64)
            self.counts[name] += 1

    def take(self) -> dict[str, float]:
        """Return the mean of every metric and start a new window."""
        means = {name: float(value) / self.counts[name] for name, value in self.sums.items()}
        self.sums.clear()
        self.counts.clear()
        return means

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Return the sums and counts as plain numbers."""
        return {"sums": {n: float(x) for n, x in self.sums.items()}, "counts": {**self.counts}}

    def load_state_dict(self, state: dict[str, dict[str, float]]) -> None:
        """Continue a window from `state_dict()`."""
        self.sums.update(state["sums"])
        self.counts.update({name: int(n) for name, n in state["counts"].items()})
