"""Diffusion-DPO of a pipeline that denoises latents (arXiv 2311.12908), here of rectified flows, as
Stable Diffusion 3 was tuned (2403.03206).

    loss = -log sigmoid(-beta / 2 ((e_w - r_w) - (e_l - r_l))),    e = mean (v - (noise - x0))^2

with w the preferred image, l the other one, e the error of the network, r that of its start, means
over the numbers of a latent x0. Both images get one noise and one noise level.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from mmrl.config import check
from mmrl.objectives.flow import Flow, NoisyBatch
from mmrl.objectives.options import DiffusionDPOConfig
from mmrl.runtime.precision import widen
from mmrl.training.trainable import copy_start


class DiffusionDPO(Flow):
    """Preferences between two images; of a run without an adapter `start` has the trained weights
    as they were."""

    Config = DiffusionDPOConfig
    config: DiffusionDPOConfig
    noised = ("image", "source")

    def _build(self, device: torch.device | str, deferred: bool) -> None:
        fits = self.config.lora is not None or not deferred
        allowed = "an adapter where processes share one copy of the weights"
        check(fits, "objective.lora", None, allowed)
        super()._build(device, deferred)
        self.start: dict[str, Tensor] = {}
        if self.config.lora is None:
            widen(self.whole)  # as the trainer does, so that both compute from equal numbers
            self.start = copy_start(self.whole)

    def loss(self, batch: NoisyBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """See `compare`."""
        with torch.no_grad():  # first: no later pass may find the adapter off
            start = measure(self._ask_start(batch), batch.velocity)
        return compare(
            measure(self.module(**batch.inputs), batch.velocity), start, self.config.beta
        )

    def _ask_start(self, batch: NoisyBatch) -> Tensor:
        """The velocity that the network predicted before the run."""
        if self.config.lora is None:
            return functional_call(self.whole, self.start, (), batch.inputs)
        with self.adapted.disable_adapter():
            return self.module(**batch.inputs)


def measure(predicted: Tensor, velocity: Tensor) -> Tensor:
    """Mean squared errors [B] float32 of velocities [B, ...]."""
    return (predicted.float() - velocity).square().flatten(1).mean(1)


def compare(errors: Tensor, start: Tensor, beta: float) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean loss of P preferences, and by TRL's names the implicit rewards: how much less than
    its start the network errs. Errors [2 P] float32 are of all preferred images and then of the
    others."""
    chosen, rejected = (beta / 2 * (start - errors)).chunk(2)
    margins = chosen - rejected
    metrics = {
        "chosen": chosen.mean(),
        "rejected": rejected.mean(),
        "margins": margins.mean(),
        "accuracies": (margins > 0).float().mean(),
    }
    named = {f"rewards/{name}": value.detach() for name, value in metrics.items()}
    return -F.logsigmoid(margins).mean(), named
