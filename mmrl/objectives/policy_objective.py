"""What the objectives of a policy share: data that may be streams, and how it is saved."""

from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import nn

from mmrl.data.row_stream import RowStream, StoredRows
from mmrl.models.policy import Policy
from mmrl.objectives.start_config import StartConfig

Items = StoredRows[Any] | RowStream[Any]
C = TypeVar("C", bound=StartConfig)


class PolicyObjective(Generic[C]):
    """Data and network of the supervised training of a policy.

    Attributes:
        data: items by the name of their part; those of the first are counted as epochs.
    """

    config: C
    policy: Policy
    module: nn.Module
    data: dict[str, Items]

    @property
    def examples_per_epoch(self) -> int | None:
        """Examples of the data; None for a stream."""
        first = next(iter(self.data.values()))
        return len(first.items) if isinstance(first, StoredRows) else None

    def data_state(self) -> dict[str, Any]:
        """Where streams are."""
        return {name: each.state_dict() for name, each in self._streams()}

    def load_data_state(self, state: dict[str, Any]) -> None:
        """Continue from `data_state()`."""
        for name, each in self._streams():
            each.load_state_dict(state[name])

    def _streams(self) -> list[tuple[str, RowStream[Any]]]:
        return [(name, each) for name, each in self.data.items() if isinstance(each, RowStream)]

    def save(self, directory: Path) -> None:
        """Write network and tokenizer in the public format of their family."""
        self.policy.save(directory, self.config.save_dtype)

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Nothing beyond the training losses; benchmarks score samples."""
        return {}
