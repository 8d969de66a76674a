"""Estimators: mask strategies, scoring and bounds, from a finished canvas to log-probabilities."""

from collections.abc import Callable

from mmrl.estimators.bounds import BOUNDS, Quantity
from mmrl.estimators.masks import Draw, full, random
from mmrl.estimators.scoring import score
from mmrl.types import Passes, Rollout

__all__ = ["BOUNDS", "MASKS", "Draw", "Quantity", "score"]

MASKS: dict[str, Callable[[Rollout, Draw], Passes]] = {"full": full, "random": random}
"""Mask strategies by the name used in configurations."""
