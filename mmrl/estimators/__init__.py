"""Estimators: mask strategies, scoring and bounds, from a finished canvas to log-probabilities."""

from mmrl.estimators.bounds import BOUNDS, Quantity, View
from mmrl.estimators.masks import MASKS, Draw, Strategy
from mmrl.estimators.scoring import score

__all__ = ["BOUNDS", "MASKS", "Draw", "Quantity", "Strategy", "View", "score"]
