"""The end of a run whose score on held-out prompts no longer improves.

It follows from the lines of `metrics.jsonl` alone, so a resumed run ends where it would have.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from mmrl.config import Settings, at_least, filled
from mmrl.run.metrics_file import is_number


@dataclass(kw_only=True)
class StopConfig(Settings):
    """A rule that ends a run early, in one section of short names: transformers has them as
    `metric_for_best_model`, `greater_is_better`, and of its EarlyStoppingCallback
    `early_stopping_patience` and `early_stopping_threshold`."""

    metric: Annotated[str, filled("eval/<task>/<key of a reward of its evaluations>")] = ""
    """Metric of evaluations, such as eval/images/imagereward: best one that is not trained on."""
    patience: Annotated[int, at_least(1)] = 3
    """Evaluations in a row without an improvement after which the run ends."""
    min_delta: Annotated[float, at_least(0)] = 0.0
    """An improvement is a value that is better than the best by more than this."""
    mode: Literal["max", "min"] = "max"
    """Whether larger or smaller values are better."""


class Standing(NamedTuple):
    """The step of the best evaluation, -1 before the first, its value, and the number since."""

    step: int
    best: float
    since: int

    def describe_end(self, rule: StopConfig) -> str:
        """Why the run ends; empty while it goes on."""
        if self.since < rule.patience:
            return ""
        return (
            f"stop_on: {rule.metric} was best, {self.best:.4g}, at step {self.step}, and has not"
            f" improved by more than {rule.min_delta:g} in {self.since} evaluations since"
        )


def find_standing(rule: StopConfig, lines: Iterable[Mapping[str, Any]]) -> Standing:
    """Apply a rule to the lines of `metrics.jsonl`; those without a finite value do not count."""
    standing, sign = Standing(-1, 0.0, 0), 1 if rule.mode == "max" else -1
    for line in lines:
        value = line.get(rule.metric)
        if not is_number(value):
            continue
        gain = sign * (value - standing.best)
        if standing.step < 0 or gain > rule.min_delta:
            standing = Standing(line["step"], value, 0)
        else:
            standing = standing._replace(since=standing.since + 1)
    return standing
