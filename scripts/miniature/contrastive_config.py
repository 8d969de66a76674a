"""Options of the `contrastive` objective."""

from dataclasses import dataclass, field
from typing import Literal

from mmrl.config import check


@dataclass(kw_only=True)
class ContrastiveConfig:
    """Training of a new CLIP on pairs of image and caption."""

    data: str = ""
    """Parquet file with columns `image`, `prompt` and `metadata`, or a folder of them."""
    network: str = ""
    """Directory of a CLIP, of which sizes (open_clip_config.json) and tokenizer are taken."""
    near_misses: int = 0
    """Near misses of each caption."""
    replace: list[list[str]] = field(default_factory=list)
    """Lists of words; a near miss has one word replaced by another of its list."""
    swap: list[list[str]] = field(default_factory=list)
    """Lists of words; or two words of one list are swapped."""
    eval_pairs: int = 256
    """Pairs scored at each evaluation."""
    save_dtype: Literal["float32", "bfloat16", "float16"] = "float16"
    """Stored precision of the saved weights."""

    def __post_init__(self) -> None:
        check(self.data != "", "objective.data", self.data, "the path of a parquet with pairs")
        allowed = "a directory with open_clip_config.json and tokenizer"
        check(self.network != "", "objective.network", self.network, allowed)
        exchanged = self.near_misses == 0 or bool(self.replace or self.swap)
        allowed = "0 without words to change in objective.replace or objective.swap"
        check(exchanged, "objective.near_misses", self.near_misses, allowed)
