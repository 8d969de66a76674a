"""How the images of training data become codes."""

from dataclasses import dataclass

from mmrl.config import check


@dataclass(kw_only=True)
class ImageCodesConfig:
    """How the images of training data become codes."""

    encode_batch_size: int = 8
    """Images that the image tokenizer encodes at once, on the device of the run."""
    codes_cache: str | None = None
    """Folder in which codes are kept for later epochs and runs; any number of processes may share
    it. null keeps them in memory. Nothing is encoded before its first micro-batch."""

    def __post_init__(self) -> None:
        size = self.encode_batch_size
        check(size >= 1, "objective.encode_batch_size", size, "at least 1")
        check(self.codes_cache != "", "objective.codes_cache", "", "null or a folder")
