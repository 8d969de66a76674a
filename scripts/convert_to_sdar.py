"""Start a block-diffusion network of SDAR's type from the weights of a LLaDA-type text checkpoint.

    python scripts/convert_to_sdar.py model=datasets/text/checkpoints/llada out=runs/text_sdar_start
    python -m mmrl.sft config=configs/sft/text_sdar.yaml

The weights are the same under SDAR's names. LLaDA has no norm of queries and keys: theirs begin
with the size that queries and keys have on average, so that attention is about as sharp as before.
The special tokens of the tokenizer get SDAR's names. What is written must be trained, by
`corruption: block`: its attention is another one.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

if TYPE_CHECKING:
    from mmrl.models.network.core import MaskedTokenModel

NAMES = {
    "<|start_header_id|>": "<|im_start|>",
    "<|end_header_id|>": "<|im_sep|>",
    "<|eot_id|>": "<|im_end|>",
    "<|mdm_mask|>": "<|MASK|>",
}
"""Special tokens of LLaDA, and what they are called in the result."""


@dataclass(kw_only=True)
class Config:
    """What to convert."""

    model: str = ""
    """Directory or hub id of a LLaDA-type checkpoint."""
    out: str = ""
    """Folder to write, a new one."""
    block_size: int = 4
    """Positions of a block."""

    def __post_init__(self) -> None:
        check(self.model != "", "model", self.model, "a directory or a hub id")
        new = self.out != "" and not Path(self.out).exists()
        check(new, "out", self.out, "a folder that does not exist yet")
        check(self.block_size >= 1, "block_size", self.block_size, "at least 1")


USAGE = Usage("python scripts/convert_to_sdar.py", __doc__, Config)


def convert(config: Config) -> None:
    """Write the network and its tokenizer.

    Raises:
        ConfigError: the checkpoint is not LLaDA's.
        FileNotFoundError, ValueError: see `load_model`.
    """
    from mmrl.models import load_model
    from mmrl.models.loading import build_network, save_model
    from mmrl.models.source import find_directory

    source = load_model(config.model)
    kind = source.public_config.get("model_type")
    check(kind == "llada", "model", config.model, "a LLaDA-type text checkpoint")
    result = build_network(sdar_config(source, config.block_size))
    state = {**result.state_dict(), **source.state_dict()}
    for name in ("q", "k"):
        for number, block in enumerate(source.blocks):
            # the deviation of each feature where the inputs of the layer have deviation 1
            projection = getattr(block.attn, name).weight * block.attn_norm.weight
            weight = state[f"blocks.{number}.attn.{name}_norm.weight"]
            weight.fill_(projection.detach().square().sum(1).mean().sqrt())
    result.load_state_dict(state)
    folder = Path(config.out)
    save_model(result, folder, "bfloat16")
    print(f"{folder}: {config.model} in blocks of {config.block_size}")
    rename_tokens(find_directory(config.model), folder)


def sdar_config(network: "MaskedTokenModel", block_size: int) -> dict[str, Any]:
    """`config.json` of a network of SDAR's type with the sizes of another."""
    core, public = network.core, network.public_config
    return {
        "model_type": "sdar",
        "architectures": ["SDARForCausalLM"],
        "attention_bias": False,
        "block_alignment": "right",
        "block_size": block_size,
        "eos_token_id": public["eos_token_id"],
        "head_dim": core.head_dim,
        "hidden_act": "silu",
        "hidden_size": core.hidden_size,
        "intermediate_size": core.mlp_size,
        "mask_token_id": public["mask_token_id"],
        "max_position_embeddings": public["max_sequence_length"],
        "num_attention_heads": core.num_heads,
        "num_hidden_layers": core.num_layers,
        "num_key_value_heads": core.num_kv_heads,
        "pad_token_id": public["pad_token_id"],
        "rms_norm_eps": core.norm_eps,
        "rope_scaling": None,
        "rope_theta": core.rope_theta,
        "tie_word_embeddings": core.tied_head,
        "vocab_size": core.vocab_size,
    }


def rename_tokens(source: Path, folder: Path) -> None:
    """Copy the files of a tokenizer, with SDAR's names for its special tokens."""
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (source / file).is_file():
            text = (source / file).read_text()
            for old, new in NAMES.items():
                text = text.replace(old, new)
            (folder / file).write_text(text)


def main() -> int:
    """Convert what the command line says; return the exit status."""
    return run_command(USAGE, sys.argv[1:], lambda: convert(load_config(Config, sys.argv[1:])))


if __name__ == "__main__":
    sys.exit(main())
