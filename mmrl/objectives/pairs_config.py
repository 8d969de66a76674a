"""Where pairs of an image and a text are read from."""

from dataclasses import dataclass

from mmrl.config import check
from mmrl.objectives.stream_config import StreamConfig


@dataclass(kw_only=True)
class PairsConfig(StreamConfig):
    """Where pairs of an image and a text are read from."""

    data: str = ""
    """Training pairs, an image and its text per row: a parquet file or a folder of them, a
    WebDataset `.tar`, a pattern such as `shards/*.tar`, a folder of images, or a hub data set."""
    data_config: str | None = None
    """Configuration of a hub data set."""
    data_split: str | None = None
    """Split of a hub data set; null is `train`."""
    image_column: str = "image"
    """Column that holds the images."""
    text_column: str = "prompt"
    """Column that holds the captions, or the instructions of edits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.data != "", f"{self.where}.data", self.data, "a file or data set of pairs")
