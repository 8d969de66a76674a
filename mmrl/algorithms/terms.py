"""What a surrogate is formed of, and what it forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mmrl.algorithms.gaussians import gaussian
from mmrl.types import Gaussian

if TYPE_CHECKING:
    from torch import Tensor


class Comparison(NamedTuple):
    """What is compared: `log_ratio`, `new` and `old` values and `counts` [K, B, L], 0 where they do
    not count; `advantages`, broadcast to them; `epsilon`, the lower and the upper range; and the
    Gaussians of both policies, where actions are drawn from such."""

    log_ratio: Tensor
    new: Tensor
    old: Tensor
    counts: Tensor
    advantages: Tensor
    epsilon: tuple[float, float]
    new_gaussian: Gaussian | None = None
    old_gaussian: Gaussian | None = None

    def step_kl(self) -> Tensor:
        """[K, B, 1]: the KL of the step to the old policy's, per number of the latent."""
        assert self.new_gaussian and self.old_gaussian, "the strategy is checked with the method"
        return gaussian(self.new_gaussian, self.old_gaussian)[..., None]


class Terms(NamedTuple):
    """`values` [K, B, L] to maximise, and where a ratio is clipped from `below` and `above`."""

    values: Tensor
    below: Tensor
    above: Tensor
