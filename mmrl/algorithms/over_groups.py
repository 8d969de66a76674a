"""Losses over groups: all rollouts of a group decide by what the term of each is multiplied.

The gradient of such a loss is that of its rollouts' own terms, times slopes that are known when all
are scored. That is done before each optimiser step, so a group need not be in one micro-batch. A
contrast measures errors of rollouts (`mmrl.algorithms.contrasts`); with ratios it is the weights
w of the policy gradient, see `mmrl.algorithms.surrogates.weighted`:

    self_normalized    G / sum of w over the group's G rollouts, so that the sum of w A grad log p
                       is divided by that of w, not by G (StableDRL, arXiv 2603.06743)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

LEAST_WEIGHT = 1e-30
"""What slopes are divided by at least."""
Slope: TypeAlias = "Callable[[Tensor, Tensor, Any], Tensor]"


class OverGroup(NamedTuple):
    """What a loss over groups is made of.

    `measure(known)`: [K, B, 1] of each rollout, of the `Scores` of a policy or the `Comparison` of
    two; `slope(found, advantages, config)`: the slope of the group's loss by the term of each, of
    what was measured, [K, P, G] as the advantages.
    """

    measure: Callable[[Any], Tensor]
    slope: Slope

    def slopes(self, found: Tensor, advantages: Tensor, size: int, config: Any) -> Tensor:
        """[K, B, 1]: the slopes for what was found of B rollouts in groups of `size`, and their
        advantages [B]; `config` has the options of the contrast."""
        groups = found[..., 0].unflatten(-1, (-1, size))
        above = advantages.to(groups).unflatten(-1, (-1, size)).expand_as(groups)
        return self.slope(groups, above, config).flatten(-2)[..., None]


def share_of_weights(found: Tensor, advantages: Tensor, config: Any) -> Tensor:
    """`self_normalized`; a weight of 0 is no rollout."""
    total = found.sum(-1, keepdim=True).clamp(min=LEAST_WEIGHT)
    return ((found > 0).sum(-1, keepdim=True) / total).expand_as(found)
