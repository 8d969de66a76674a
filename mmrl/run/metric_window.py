"""Means of metrics between two lines of `metrics.jsonl`."""

from collections import defaultdict
from collections.abc import Mapping

from torch import Tensor, as_tensor, float64


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
