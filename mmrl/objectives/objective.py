"""What the supervised loop asks of a training objective."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn


class Objective(Protocol):
    """Data, network and loss of one kind of supervised training.

    An implementation is one file with one class, listed in `mmrl.objectives.OBJECTIVES`. It owns a
    keyword-only dataclass `Config` and is built as `cls(config, seed=…, batch_size=…)`, where
    `batch_size` is the number of examples per device and micro-batch. Building it leaves the global
    generator as it was: new weights depend on `seed` only.
    """

    Config: type[Any]
    module: nn.Module
    """The trained network, on the CPU in float32 after construction. Parameters with
    `requires_grad=False` stay as they are."""

    def batch(self, step: int, rank: int, world_size: int) -> Any:
        """Return this rank's examples of micro-batch `step` as CPU tensors.

        Called without gradient on every rank. The result depends on the arguments and the seed
        only, so a resumed run sees the examples it would have seen, and the micro-batches of all
        ranks together are the same whatever the number of ranks.
        """
        ...

    def loss(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss of a batch on the module's device and scalar metrics.

        Called with gradient; the forward goes through `self.module`, which the loop may have
        wrapped for distributed training.
        """
        ...

    def save(self, directory: Path) -> None:
        """Write the trained model into an existing, empty directory in its public format.

        Called on rank 0 only. Weights come from `state_dict()` of the module given at the start,
        which is whole then even if the module is sharded.
        """
        ...

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Return metrics of the present weights; may write images into `directory`.

        Called without gradient, on rank 0 only, every `eval_steps`.
        """
        ...
