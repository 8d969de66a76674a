"""Options of the `contrastive` objective."""

from dataclasses import dataclass, field
from typing import Any, Literal

from mmrl.config import check


@dataclass(kw_only=True)
class ClipNetworkConfig:
    """Sizes of a new CLIP with transformer towers."""

    image_size: int = 224
    """Side of the square input of the image tower in pixels."""
    patch_size: int = 16
    """Side of a patch in pixels."""
    vision_width: int = 384
    """Width of the image tower."""
    vision_layers: int = 12
    """Layers of the image tower."""
    text_width: int = 256
    """Width of the text tower."""
    text_layers: int = 6
    """Layers of the text tower."""
    head_width: int = 64
    """Width of an attention head in both towers."""
    embed_dim: int = 256
    """Length of the features both towers end in."""
    context_length: int = 77
    """Tokens of a caption, with begin and end."""
    vocab_size: int = 4096
    """Tokens of the byte-pair tokenizer trained on the captions; 256 bytes and 3 marks at least."""

    def open_clip_config(self) -> dict[str, Any]:
        """The content of `open_clip_config.json`; pixels are mapped to [-1, 1]."""
        vision = {
            "image_size": self.image_size,
            "patch_size": self.patch_size,
            "width": self.vision_width,
            "layers": self.vision_layers,
            "head_width": self.head_width,
        }
        text = {
            "context_length": self.context_length,
            "vocab_size": self.vocab_size,
            "width": self.text_width,
            "layers": self.text_layers,
            "heads": self.text_width // self.head_width,
            # The name only tells open_clip to take the tokenizer that lies beside the weights.
            "hf_tokenizer_name": "tokenizer",
            "pool_type": "eos",
            "pad_id": 0,
            "eos_id": 2,
        }
        halves = [0.5, 0.5, 0.5]
        return {
            "model_cfg": {"embed_dim": self.embed_dim, "vision_cfg": vision, "text_cfg": text},
            "preprocess_cfg": {"mean": halves, "std": halves},
        }


@dataclass(kw_only=True)
class ContrastiveConfig:
    """Training of a new CLIP on pairs of image and caption."""

    data: str = ""
    """Parquet file with columns `image`, `prompt` and `metadata`, or a folder of them."""
    network: ClipNetworkConfig = field(default_factory=ClipNetworkConfig)
    """Sizes of the new network."""
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
        exchanged = self.near_misses == 0 or bool(self.replace or self.swap)
        allowed = "0 without words to change in objective.replace or objective.swap"
        check(exchanged, "objective.near_misses", self.near_misses, allowed)
