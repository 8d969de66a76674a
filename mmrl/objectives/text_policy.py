"""The policy behind supervised training on text: a checkpoint to continue, or a new network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmrl.objectives.masked import NetworkConfig
from mmrl.randomness import generator
from models.checkpoint import load_model, new_model
from models.llada import BACKBONE, core_config
from models.policy import Policy, check_text, load_tokenizer
from models.source import find_directory
from models.text import Text


def text_layout(model: str, tokenizer: str, chat_template: bool | None, length: int) -> Text:
    """The text layout of a checkpoint or of a tokenizer directory; no network is loaded.

    Raises:
        FileNotFoundError, ValueError: see `find_directory` and `load_tokenizer`.
    """
    directory = find_directory(model) if model else Path(tokenizer)
    return Text(load_tokenizer(directory), length, chat_template=chat_template)


def old_policy(path_or_hub_id: str, text: Text) -> Policy:
    """A checkpoint to continue from.

    Raises:
        FileNotFoundError, ValueError: see `load_model`.
    """
    network = load_model(path_or_hub_id)
    check_text(network, text)
    return Policy(network, text.tokenizer, {"text": text}, network)


def new_policy(sizes: NetworkConfig, text: Text, max_length: int, seed: int) -> Policy:
    """A LLaDA-type network with fresh weights behind the tokenizer of the layout."""
    raw = public_config(sizes, text, max_length)
    network = new_model(core_config(raw), raw, generator(seed, "initial weights"))
    return Policy(network, text.tokenizer, {"text": text}, network)


def public_config(sizes: NetworkConfig, text: Text, max_length: int) -> dict[str, Any]:
    """LLaDA's config.json of a new network."""
    rows = text.vocab[1]
    return {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        "d_model": sizes.d_model,
        "n_layers": sizes.n_layers,
        "n_heads": sizes.n_heads,
        "n_kv_heads": sizes.n_heads,
        "mlp_ratio": 4,
        "mlp_hidden_size": sizes.mlp_hidden_size,
        "rope_theta": sizes.rope_theta,
        "max_sequence_length": max(4096, max_length),
        "vocab_size": rows,
        "embedding_size": rows,
        "mask_token_id": text.ids["mask"],
        "eos_token_id": text.ids["eos"],
        "pad_token_id": text.ids["eos"],
        **BACKBONE,
    }
