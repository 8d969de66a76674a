"""Exponential moving average of trained parameters, `ema <- decay * ema + (1 - decay) * value`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mmrl.runtime.sharding import like


class ExponentialAverage:
    """A float32 average of the parameters that require gradients.

    The effective decay starts low, `min(decay, (1 + n) / (10 + n))` after n updates, so that short
    runs are not dominated by their starting weights.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.average = {n: p.detach().float().clone() for n, p in self.parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the present parameters."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, parameter in self.parameters.items():
            self.average[name].lerp_(parameter.detach().float(), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average into the module while the context is open."""
        kept = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._copy(self.average)
        try:
            yield
        finally:
            self._copy(kept)

    def state_dict(self) -> dict[str, object]:
        """Return the average and the number of updates."""
        return {"average": self.average, "updates": self.updates}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Continue from `state_dict()` of an average over the same parameters."""
        average: dict[str, Tensor] = state["average"]  # type: ignore[assignment]
        self.updates = int(state["updates"])  # type: ignore[call-overload]
        for name, value in self.average.items():
            value.copy_(like(average[name], value))

    @torch.no_grad()
    def _copy(self, values: dict[str, Tensor]) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(values[name])
