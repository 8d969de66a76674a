"""Estimators: mask strategies, scoring and bounds, from a finished canvas to log-probabilities."""

from typing import TYPE_CHECKING

from mmrl.config.lazy_names import lazy_names
from mmrl.estimators.bounds import BOUNDS, Quantity, View
from mmrl.estimators.masks import MASKS, Draw, Strategy

if TYPE_CHECKING:
    from mmrl.estimators.entropy import highest
    from mmrl.estimators.scoring import Scores, score, score_with_values
    from mmrl.estimators.values import state_values

__all__ = [
    "BOUNDS",
    "MASKS",
    "Draw",
    "Quantity",
    "Scores",
    "Strategy",
    "View",
    "highest",
    "score",
    "score_with_values",
    "state_values",
]

__getattr__ = lazy_names(
    __name__,
    {
        "entropy": ("highest",),
        "scoring": ("Scores", "score", "score_with_values"),
        "values": ("state_values",),
    },
)
