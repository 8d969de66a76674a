"""Left to right: the chain rule in reading order, every later token hidden.

    slice s of S uniformly: `tokens` successive tokens
    hidden: the slice and everything behind it;  weight S within the slice

    E = sum_s sum_{j in slice s} CE_j(slices s, s+1, ..., S)

With one token per slice this is the exact negative log-likelihood of the completion under
left-to-right sampling, the factorisation that JustGRPO scores (arXiv 2601.15165).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mmrl.config import check
from mmrl.objectives.corruptions.corruption import Chance, View
from mmrl.objectives.corruptions.trace import sliced

if TYPE_CHECKING:
    from torch import Tensor


class LeftToRight:
    """Hides the tokens from one place on."""

    recorded: ClassVar[bool] = False
    continued: ClassVar[bool] = True

    @dataclass(kw_only=True)
    class Config:
        """Options of `left_to_right`."""

        tokens: int = 1
        """Successive tokens learned at once."""

        def __post_init__(self) -> None:
            check(self.tokens >= 1, "objective.corruption.tokens", self.tokens, "at least 1")

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, order: Tensor, chance: Chance) -> View:
        """See `Corruption`."""
        import torch

        return sliced(torch.arange(len(order)), self.config.tokens, chance)
