"""Estimators: mask strategies, scoring and bounds, from a finished canvas to log-probabilities."""

from typing import TYPE_CHECKING, Any

from mmrl.estimators.bounds import BOUNDS, Quantity
from mmrl.estimators.masks import MASKS

if TYPE_CHECKING:
    from mmrl.estimators.scoring import score


def __getattr__(name: str) -> Any:
    """Import `score` when it is first used: settings are read without torch."""
    if name != "score":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mmrl.estimators.scoring import score

    return score
