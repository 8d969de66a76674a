"""What the supervised loop asks of an objective."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

from mmrl.pretrained.known import find_here

Network = TypeVar("Network", bound=nn.Module)


class Objective(Protocol):
    """Data, network and loss of one kind of supervised training.

    An implementation is a class with a keyword-only dataclass `Config`, built as `cls(config,
    seed=…, batch_size=…)` with `batch_size` examples per device and micro-batch, and with
    `device=…` where it has such a parameter, for one that loads its network onto the device, and
    `deferred=…` likewise, for one that leaves the weights of a checkpoint unread where processes
    share the model (`load_model`); see `mmrl.objectives.find_objective`. Building it leaves the
    global generator as it was: new weights depend on `seed` only.

    Optional are `examples_per_epoch`, how many examples there are (None if that is not known), and
    `data_state()` with `load_data_state(state)`, where the reading of a stream goes on.
    """

    Config: type[Any]
    module: nn.Module
    """The trained network, on the CPU or on the device after construction. Parameters with
    `requires_grad=False` stay as they are; the others are float32, or become so."""

    @staticmethod
    def outline(config: Any) -> tuple[nn.Module | None, str]:
        """Return what a dry run shows: the network on the meta device, and the data in words.

        Data, tokenizers and the headers of checkpoints are read and checked, but no weights. The
        network is None for a checkpoint that is only on the hub.
        """
        ...

    def batch(self, step: int, rank: int, world_size: int) -> Any:
        """Return this rank's examples of micro-batch `step` as CPU tensors.

        Called without gradient on every rank. The result depends on the arguments and the seed
        only, so a resumed run reads the same examples, and the micro-batches of all ranks together
        do not depend on the number of ranks.
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

        Called on rank 0 only. Weights come from `state_dict()` of the module as it was built, which
        is complete even if the module is sharded.
        """
        ...

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Return metrics of the current weights; may write images into `directory`.

        Called without gradient, on rank 0 only, every `eval_steps`.
        """
        ...


def find_outline(key: str, path_or_hub_id: str, read: Callable[[Path], Network]) -> Network | None:
    """Read a model without its weights from a directory; None for one that is only on the hub.

    Args:
        key: of the setting, for messages.
        path_or_hub_id: its value.
        read: builds the model from the headers of a directory.

    Raises:
        ConfigError, FileNotFoundError, ValueError: see `find_here` and `read`.
    """
    directory = find_here(key, path_or_hub_id)
    return None if directory is None else read(directory)
