"""Rows that are read while a run goes on: shuffled within a bounded window, resumed exactly.

    epoch e:  the shards in an order drawn from (seed, e), their rows in turn
    window:   `size` rows, made into items, whose order is drawn from (seed, e, first row)

Every process reads the same stream and takes the items at its own positions, so what a step trains
on does not depend on the number of processes. The state is that of the source where the present
window begins, which the window is read from again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from mmrl.config import ConfigError
from mmrl.data.rows import open_rows, read_row
from mmrl.randomness import permutation, stable_seed

T = TypeVar("T")


class RowStream(Generic[T]):
    """An endless stream of items, read from rows in windows.

    Args:
        source: file, pattern, folder or hub id of the rows, with configuration and split, see
            `mmrl.data.rows`.
        read: makes the items of a row from its place and the row; none for one that is left out.
        seed: of all orders.
        size: rows of a window, which is all that is held in memory.

    Raises:
        NotHereError, ConfigError: see `open_rows`.
    """

    def __init__(
        self,
        source: tuple[str, str | None, str | None],
        read: Callable[[str, Any], Sequence[T]],
        seed: int,
        size: int,
    ) -> None:
        self.source, self.read, self.seed, self.size = source, read, seed, size
        self.items: list[T] = []
        self._begin()

    def take(self, positions: Sequence[int]) -> list[T]:
        """The items at positions of the stream, which ascend from call to call; others are found by
        reading from the beginning again.

        Raises:
            ConfigError: a row that cannot be read, or an epoch without an item.
        """
        found = []
        for position in positions:
            if position < self.first:
                self._begin()
            while position >= self.first + len(self.items):
                self._advance()
            found.append(self.items[position - self.first])
        return found

    def read_first(self) -> None:
        """Read the first row, which shows whether the columns are there.

        Raises:
            ConfigError: see `take`; also a source without rows.
        """
        row = next(iter(open_rows(*self.source)), None)
        if row is None:
            raise ConfigError(f"'{self.source[0]}' has no rows.")
        self.read(*read_row(row, f"{self.source[0]}, row 0"))

    def state_dict(self) -> dict[str, Any]:
        """Where the present window begins."""
        return self.begins

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()` of a stream of the same source, seed and size."""
        self.first, self.items, self.seen = state["first"], [], state["seen"]
        self._open(state["epoch"], state["row"], state["source"])

    def _begin(self) -> None:
        self.first, self.items, self.seen = 0, [], 0
        self._open(0, 0, None)

    def _open(self, epoch: int, row: int, state: dict[str, Any] | None) -> None:
        self.epoch, self.row, self.start = epoch, row, state
        self.rows = open_rows(*self.source)
        if self.rows.num_shards > 1:
            # a buffer of one shuffles the shards alone; windows do the rest, and can be resumed
            seed = stable_seed(self.seed, "shards", epoch)
            self.rows = self.rows.shuffle(seed=seed, buffer_size=1)
        if state is not None:
            self.rows.load_state_dict(state)
        self.iterator = iter(self.rows)
        self.begins = self._place()

    def _place(self) -> dict[str, Any]:
        # a source that has not been read since it was opened has no state yet
        state = self.rows.state_dict() or self.start
        here = {"first": self.first, "epoch": self.epoch, "row": self.row, "seen": self.seen}
        return {**here, "source": state}

    def _advance(self) -> None:
        """Read the next window with an item."""
        self.first += len(self.items)
        self.items = []
        while not self.items:
            self.begins, start = self._place(), self.row
            items = [item for place, row in self._read_rows() for item in self.read(place, row)]
            order = permutation(len(items), self.seed, "window", self.epoch, start)
            self.items = [items[n] for n in order]
            self.seen += len(items)
            if self.row == start:  # the epoch is over
                if not self.seen:
                    raise ConfigError(f"'{self.source[0]}' holds nothing to learn.")
                self.seen = 0
                self._open(self.epoch + 1, 0, None)

    def _read_rows(self) -> Iterator[tuple[str, Any]]:
        for row in self.iterator:
            self.row += 1
            yield read_row(row, f"{self.source[0]}, row {self.row - 1}")
            if self.row % self.size == 0:
                return
