"""Exponential moving average of trained parameters, `ema <- decay * ema + (1 - decay) * value`.

torch's `AveragedModel` does not fit: it takes over the parameters at its first update, and copies
the module, which a sharded one refuses.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from mmrl.runtime.sharding.tensors import copy_part, held_part, take_part
from mmrl.training.trainable import swap_values


class ExponentialAverage:
    """A float32 average of the parameters that require gradients.

    The effective decay starts low, `min(decay, (1 + n) / (10 + n))` after n updates, so that short
    runs are not dominated by their starting weights; where an update states its own, that is taken.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay, self.updates = module, decay, 0
        self.parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.average = {n: copy_part(p, torch.float32) for n, p in self.parameters.items()}

    @torch.no_grad()
    def update(self, decay: float | None = None) -> None:
        """Move the average towards the present parameters."""
        self.updates += 1
        if decay is None:
            decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, parameter in self.parameters.items():
            self.average[name].lerp_(held_part(parameter).float(), 1 - decay)

    def apply(self) -> AbstractContextManager[None]:
        """Put the average into the module while the context is open."""
        return swap_values(self.module, self.average)

    def state_dict(self) -> dict[str, object]:
        """Return the average and the number of updates."""
        return {"average": self.average, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()` of an average over the same parameters."""
        self.updates = int(state["updates"])
        for name, value in self.average.items():
            value.copy_(take_part(state["average"][name], value))
