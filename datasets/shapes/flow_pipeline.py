"""Write the sizes, the tokenizers and the autoencoder of a tiny Stable Diffusion 3.

    python datasets/shapes/flow_pipeline.py out=runs/shapes_flow_start vae=runs/shapes_vae/final

The directory is that of a diffusers pipeline whose transformer and text encoders have no weights
yet: `objective: {name: flow, new_weights: true, train_text_encoder: true}` draws and trains them.
Each word of the prompts is a token. There is no T5.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tokenizer import words  # noqa: E402

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

if TYPE_CHECKING:
    from transformers import CLIPTokenizer

START, END = "<|startoftext|>", "<|endoftext|>"
ENCODERS = {"text_encoder": (64, 2, 4), "text_encoder_2": (32, 1, 2)}
"""Width, layers and heads of the two."""
SCHEDULER = "FlowMatchEulerDiscreteScheduler"


@dataclass(kw_only=True)
class Config:
    """Sizes of the network."""

    out: str = ""
    """Folder to write into."""
    vae: str = ""
    """Folder of diffusers' `AutoencoderKL`, copied as it is."""
    width: int = 96
    """Of the transformer."""
    layers: int = 5
    """Of the transformer."""
    heads: int = 4
    """Of the transformer."""
    patch: int = 1
    """Latents of a token, along a side."""
    length: int = 16
    """Longest prompt in tokens, with its begin and end."""
    shift: float = 1.0
    """Of the schedule by which samplers denoise."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")


def build_tokenizer(length: int) -> CLIPTokenizer:
    """The tokenizer: byte pairs that join to each word of the prompts; the end has the last id."""
    from tokenizers import Tokenizer, models, trainers
    from transformers import CLIPTokenizer

    trained = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=[START], end_of_word_suffix="</w>", show_progress=False
    )
    trained.train_from_iterator([[word] for word in sorted(words())], trainer)
    found = json.loads(trained.to_str())["model"]
    vocab = {**found["vocab"], END: len(found["vocab"])}
    merges = [tuple(pair) for pair in found["merges"]]
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=length)


def write(config: Config) -> Path:
    """Write the pipeline; return its folder. Raises ConfigError: there is no autoencoder."""
    found, allowed = (Path(config.vae) / "config.json").is_file(), "the folder of an AutoencoderKL"
    check(found, "vae", config.vae, allowed, "Train configs/sft/shapes_vae.yaml.")
    out, tokenizer = Path(config.out), build_tokenizer(config.length)
    for name in ("tokenizer", "tokenizer_2"):
        tokenizer.save_pretrained(out / name)
    for name, sizes in ENCODERS.items():
        encoder_config(tokenizer, config.length, *sizes).save_pretrained(out / name)
    shutil.copytree(config.vae, out / "vae", dirs_exist_ok=True)
    vae = json.loads((out / "vae" / "config.json").read_text())
    side = vae["sample_size"] // 2 ** (len(vae["block_out_channels"]) - 1)
    text = sum(width for width, _, _ in ENCODERS.values())
    transformer = {
        "_class_name": "SD3Transformer2DModel",
        "sample_size": side,
        "patch_size": config.patch,
        "in_channels": vae["latent_channels"],
        "out_channels": vae["latent_channels"],
        "num_layers": config.layers,
        "attention_head_dim": config.width // config.heads,
        "num_attention_heads": config.heads,
        "joint_attention_dim": text,
        "caption_projection_dim": config.width,
        "pooled_projection_dim": text,
        "pos_embed_max_size": side // config.patch,
        "qk_norm": "rms_norm",
    }
    write_json(out / "transformer" / "config.json", transformer)
    scheduler = {"_class_name": SCHEDULER, "num_train_timesteps": 1000, "shift": config.shift}
    write_json(out / "scheduler" / "scheduler_config.json", scheduler)
    write_json(out / "model_index.json", list_parts())
    return out


def encoder_config(
    tokenizer: CLIPTokenizer, length: int, width: int, layers: int, heads: int
) -> Any:
    """The config of a text encoder of CLIP."""
    from transformers import CLIPTextConfig

    return CLIPTextConfig(
        architectures=["CLIPTextModelWithProjection"],
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        projection_dim=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=length,
        hidden_act="gelu",
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def list_parts() -> dict[str, Any]:
    """The content of model_index.json."""
    absent = ("text_encoder_3", "tokenizer_3", "image_encoder", "feature_extractor")
    return {
        "_class_name": "StableDiffusion3Pipeline",
        **dict.fromkeys(ENCODERS, ["transformers", "CLIPTextModelWithProjection"]),
        **dict.fromkeys(("tokenizer", "tokenizer_2"), ["transformers", "CLIPTokenizer"]),
        **dict.fromkeys(absent, [None, None]),
        "scheduler": ["diffusers", SCHEDULER],
        "transformer": ["diffusers", "SD3Transformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def main() -> int:
    """Write the pipeline of the command line; return the exit status."""
    usage = Usage("python datasets/shapes/flow_pipeline.py", __doc__, Config)
    return run_command(usage, sys.argv[1:], lambda: print(write(load_config(Config, sys.argv[1:]))))


if __name__ == "__main__":
    sys.exit(main())
