"""What the supervised loop asks of an objective."""

from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn


class Objective(Protocol):
    """Data, network and loss of one kind of supervised training.

    An implementation is a class with a keyword-only dataclass `Config`, built as `cls(config,
    seed=…, batch_size=…)` with `batch_size` examples per device and micro-batch; where it has such
    parameters, with the `device` onto which it loads its network, and with `deferred`, whether it
    leaves the weights of a checkpoint unread (`load_model`). Building it leaves the global
    generator as it was: new weights depend on `seed` only.

    Optional are `examples_per_epoch`, how many examples there are (None if that is not known), and
    `data_state()` with `load_data_state(state)`, where the reading of a stream goes on.
    """

    Config: type[Any]
    module: nn.Module
    """The trained network, on the CPU or on the device after construction. Parameters with
    `requires_grad=False` stay as they are; the others are float32, or become so."""

    @staticmethod
    def outline(config: Any) -> tuple[nn.Module | None, str]:
        """Return what a dry run shows: the network on the meta device (None for a checkpoint that
        is only on the hub), and the data in words. Everything is checked but the weights."""
        ...

    def batch(self, step: int, rank: int, world_size: int) -> Any:
        """Return this rank's examples of micro-batch `step` as CPU tensors. They depend on the
        arguments and the seed only, and those of all ranks together not on the number of ranks."""
        ...

    def loss(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss of a batch on the module's device and scalar metrics. The forward
        goes through `self.module`, which the loop may have wrapped for distributed training."""
        ...

    def save(self, directory: Path) -> None:
        """Write the trained model into an empty directory in its public format, on rank 0 only.
        `state_dict()` of the module as it was built is complete even if it is sharded."""
        ...

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Return metrics of the current weights, on rank 0 only, without gradient; may write images
        into `directory`."""
        ...
