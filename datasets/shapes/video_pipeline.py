"""Write the sizes, the tokenizer and the autoencoder of a tiny Wan 2.1.

    python datasets/shapes/video_pipeline.py out=runs/shapes_video_start

The directory is that of a diffusers pipeline whose transformer and text encoder have no weights
yet: `objective: {name: flow, new_weights: true, train_text_encoder: true}` draws and trains them.
Its autoencoder is that of `video_autoencoder.py`. Each word of the prompts is a token. A text has
`length` positions, not the 512 of the published networks; in diffusers call the pipeline with
`max_sequence_length=16`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from flow_pipeline import write_json  # noqa: E402
from motion import ROWS, prompt_rows  # noqa: E402

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

if TYPE_CHECKING:
    from transformers import T5Tokenizer

SCHEDULER = "FlowMatchEulerDiscreteScheduler"
TEXT = {"d_model": 64, "d_ff": 256, "d_kv": 16, "num_heads": 4, "num_layers": 2, "dropout_rate": 0}
"""Sizes of the text encoder."""


@dataclass(kw_only=True)
class Config:
    """Sizes of the network."""

    out: str = ""
    """Folder to write into."""
    width: int = 128
    """Of the transformer."""
    layers: int = 4
    """Of the transformer."""
    heads: int = 4
    """Of the transformer."""
    length: int = 16
    """Longest prompt in tokens, with its end."""
    shift: float = 3.0
    """Of the schedule by which samplers denoise."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")


def build_tokenizer(length: int) -> T5Tokenizer:
    """The tokenizer: a piece for each word of the prompts."""
    from transformers import T5Tokenizer

    words = {word for split in ROWS for row in prompt_rows(split) for word in row["prompt"].split()}
    pieces = ["<pad>", "</s>", "<unk>", "▁", *(f"▁{word}" for word in sorted(words))]
    return T5Tokenizer([(piece, -1.0) for piece in pieces], extra_ids=0, model_max_length=length)


def write(config: Config) -> Path:
    """Write the pipeline; return its folder."""
    import video_autoencoder
    from transformers import UMT5Config

    out, tokenizer = Path(config.out), build_tokenizer(config.length)
    tokenizer.save_pretrained(out / "tokenizer")
    sizes = {**TEXT, "vocab_size": len(tokenizer), "feed_forward_proj": "gated-gelu"}
    UMT5Config(architectures=["UMT5EncoderModel"], **sizes).save_pretrained(out / "text_encoder")
    video_autoencoder.build().save_pretrained(out / "vae")
    transformer = {
        "_class_name": "WanTransformer3DModel",
        "patch_size": [1, 2, 2],
        "num_attention_heads": config.heads,
        "attention_head_dim": config.width // config.heads,
        "in_channels": video_autoencoder.CHANNELS,
        "out_channels": video_autoencoder.CHANNELS,
        "text_dim": TEXT["d_model"],
        "freq_dim": 64,
        "ffn_dim": 3 * config.width,
        "num_layers": config.layers,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "rope_max_seq_len": 32,
    }
    write_json(out / "transformer" / "config.json", transformer)
    scheduler = {"_class_name": SCHEDULER, "num_train_timesteps": 1000, "shift": config.shift}
    write_json(out / "scheduler" / "scheduler_config.json", scheduler)
    write_json(out / "model_index.json", list_parts())
    return out


def list_parts() -> dict[str, Any]:
    """The content of model_index.json."""
    return {
        "_class_name": "WanPipeline",
        "boundary_ratio": None,
        "expand_timesteps": False,
        "scheduler": ["diffusers", SCHEDULER],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "T5Tokenizer"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": [None, None],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }


def main() -> int:
    """Write the pipeline of the command line; return the exit status."""
    usage = Usage("python datasets/shapes/video_pipeline.py", __doc__, Config)
    return run_command(usage, sys.argv[1:], lambda: print(write(load_config(Config, sys.argv[1:]))))


if __name__ == "__main__":
    sys.exit(main())
