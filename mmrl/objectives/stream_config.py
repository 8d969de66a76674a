"""Whether data is read as a stream."""

from dataclasses import dataclass
from typing import ClassVar

from mmrl.config import check


@dataclass(kw_only=True)
class StreamConfig:
    """Whether data is read as a stream."""

    where: ClassVar[str] = "objective"
    """Dotted key of these settings, for messages."""

    streaming: bool = False
    """Read rows while the run goes on: of the hub without a download before the first step, of
    WebDataset archives, folders and patterns of files. Each process reads all rows."""
    shuffle_buffer: int = 1000
    """Rows that are shuffled and held in memory together, with streaming."""

    def __post_init__(self) -> None:
        size = self.shuffle_buffer
        check(size >= 1, f"{self.where}.shuffle_buffer", size, "at least 1")
