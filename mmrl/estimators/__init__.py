"""Estimators: mask strategies, scoring and bounds, from a finished canvas to log-probabilities."""

from typing import TYPE_CHECKING

from mmrl.config.lazy_names import lazy_names
from mmrl.estimators.bounds import BOUNDS, Quantity
from mmrl.estimators.masks import MASKS, MaskConfig, Strategy

if TYPE_CHECKING:
    from mmrl.estimators.scoring import TokenScores, highest_entropy, predict_values, score

__all__ = [
    "BOUNDS",
    "MASKS",
    "MaskConfig",
    "Quantity",
    "Strategy",
    "TokenScores",
    "highest_entropy",
    "predict_values",
    "score",
]

__getattr__ = lazy_names(
    __name__, {"scoring": ("TokenScores", "highest_entropy", "predict_values", "score")}
)
