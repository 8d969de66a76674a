"""Means of metrics between two lines of `metrics.jsonl`."""

from collections.abc import Mapping

import torch
from torch import Tensor


class MetricWindow:
    """Running sums of scalars, kept on their device until the means are taken."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Add the values of one step; a metric may be absent in some steps."""
        for name, value in values.items():
            self.sums[name] = torch.as_tensor(value).detach().double() + self.sums.get(name, 0.0)
            self.counts[name] = self.counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the mean of every metric and start a new window."""
        means = {name: float(value) / self.counts[name] for name, value in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Return the sums and counts as plain numbers."""
        sums = {name: float(value) for name, value in self.sums.items()}
        return {"sums": sums, "counts": {name: float(n) for name, n in self.counts.items()}}

    def load_state_dict(self, state: dict[str, dict[str, float]]) -> None:
        """Continue a window from `state_dict()`."""
        self.sums = {n: torch.tensor(v, dtype=torch.float64) for n, v in state["sums"].items()}
        self.counts = {name: int(n) for name, n in state["counts"].items()}
