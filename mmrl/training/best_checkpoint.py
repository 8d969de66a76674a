"""Which checkpoint of a run is the best by a metric of its evaluations."""

import logging
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from mmrl.config import ConfigError

logger = logging.getLogger(__name__)


class BestCheckpoint:
    """The step of the best evaluation of a trained model, on the main process.

    Args:
        metric: a key of `metrics.jsonl`, with or without its `eval/`; None for no best one.
        greater_is_better: None where the name of the metric decides: not if it ends with `loss`.

    Attributes:
        step: of the best evaluation; None before the first.
        value: of the metric there.
    """

    def __init__(self, metric: str | None, greater_is_better: bool | None) -> None:
        self.metric = metric
        rises = metric is not None and not metric.endswith("loss")
        self.sign = 1 if (rises if greater_is_better is None else greater_is_better) else -1
        self.step: int | None = None
        self.value = math.nan

    def resume(self, lines: Sequence[Mapping[str, Any]], kept: Container[int]) -> None:
        """Find the best of the evaluations whose checkpoints are kept."""
        for line in lines:
            if line["step"] in kept:
                self._compare(line["step"], line)

    def add(self, step: int, lines: Sequence[Mapping[str, float]]) -> bool:
        """Compare an evaluation; return whether it is the best so far.

        Args:
            step: of the run; what is evaluated before the first is not trained.
            lines: the metrics of the evaluation.

        Raises:
            ConfigError: none of them has the metric.
        """
        if self.metric is None or not lines:
            return False
        keys = [key for line in lines for key in line]
        if not {self.metric, f"eval/{self.metric}"} & {*keys}:
            known = ", ".join(key for key in keys if key.startswith("eval/"))
            raise ConfigError(
                f"metric_for_best_model is '{self.metric}', which the evaluation does not have."
                f" It has: {known}."
            )
        return step > 0 and any([self._compare(step, line) for line in lines])

    def _compare(self, step: int, line: Mapping[str, Any]) -> bool:
        value = line.get(self.metric or "", line.get(f"eval/{self.metric}"))
        if value is None or not math.isfinite(value):
            return False
        if self.step is not None and self.sign * value <= self.sign * self.value:
            return False
        self.step, self.value = step, value
        logger.info("best checkpoint so far: step %d, %s %.4g", step, self.metric, value)
        return True
