"""Left to right: the chain rule in reading order, every later token hidden.

    slice s of S uniformly: `tokens` successive tokens
    hidden: the slice and everything after it;  weight S within the slice

    E = sum_s sum_{j in slice s} CE_j(slices s, s+1, ..., S)

With one token per slice this is the exact negative log-likelihood of the completion under
left-to-right sampling, the factorisation that JustGRPO scores (arXiv 2601.15165).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmrl.config import check
from mmrl.objectives.corruptions.corruption import Chance, Corruption, View
from mmrl.objectives.corruptions.trace import hide_slice

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class LeftToRightConfig:
    """Hide the tokens from one position on."""

    tokens: int = 1
    """Successive tokens learned at once."""

    def __post_init__(self) -> None:
        check(self.tokens >= 1, "objective.corruption.tokens", self.tokens, "at least 1")


def corrupt(order: Tensor, chance: Chance, config: LeftToRightConfig) -> View:
    """See `Corruption`."""
    import torch

    return hide_slice(torch.arange(len(order)), config.tokens, chance)


LEFT_TO_RIGHT = Corruption(corrupt, LeftToRightConfig)
