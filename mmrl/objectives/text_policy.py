"""The policy behind supervised training on text: a checkpoint to continue, or a new network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmrl.objectives.network_config import NetworkConfig
from mmrl.objectives.objective import without_weights
from mmrl.objectives.text_rows import Tasks
from mmrl.objectives.vision_config import VisionConfig
from mmrl.randomness import generator
from models.families import llada_v
from models.families.llada import BACKBONE
from models.image_tokenizers.magvit import MagvitV2
from models.layouts.image_chat import ImageChat
from models.layouts.image_codes_chat import ImageCodesChat
from models.layouts.layout import Layout
from models.layouts.mmada_rows import MmadaRows
from models.layouts.pixels import ImageFit
from models.layouts.text_layout import TextLayout
from models.loading import FAMILIES, load_model, new_model
from models.network.core import MaskedTokenModel
from models.network.vision import Vision
from models.policy import Policy, check_text, check_vocabulary, image_grid, load_tokenizer
from models.source import find_directory


def text_layout(model: str, tokenizer: str, chat_template: bool | None, length: int) -> TextLayout:
    """The text layout of a checkpoint or of a tokenizer directory; no network is loaded.

    Raises:
        FileNotFoundError, ValueError: see `find_directory` and `load_tokenizer`.
    """
    directory = find_directory(model) if model else Path(tokenizer)
    return TextLayout(load_tokenizer(directory), length, chat_template=chat_template)


def tasks_of(
    text: TextLayout,
    network: MaskedTokenModel,
    vq: MagvitV2 | None = None,
    image_fit: ImageFit = "crop",
) -> Tasks:
    """The layouts of a network; its weights are not needed.

    Args:
        text: layout of words.
        network: with its `public_config`.
        vq: image tokenizer, for a network that reads images as codes.
        image_fit: how an image becomes the square whose codes it reads.

    Raises:
        ValueError: it sees, and its tokenizer has no chat template; or it has no row for a code.
    """
    if isinstance(network.vision, Vision):
        return Tasks(text, ImageChat(text, network.vision.tiling))
    if vq is None:
        return Tasks(text)
    layouts = MmadaRows(text.tokenizer, text.max_prompt_length)
    check_vocabulary(network, layouts, vq)
    grid = image_grid(network.public_config, vq, None)
    return Tasks(text, ImageCodesChat(text, layouts, vq, grid, image_fit))


def old_policy(path_or_hub_id: str, tasks: Tasks) -> Policy:
    """A checkpoint to continue from.

    Raises:
        FileNotFoundError, ValueError: see `load_model`.
    """
    network = load_model(path_or_hub_id)
    check_text(network, tasks.text)
    return _policy(network, tasks)


def new_policy(raw: dict[str, Any], tasks: Tasks, seed: int) -> Policy:
    """A network with fresh weights behind the tokenizer of the layouts.

    Args:
        raw: its config.json, from `public_config`.
        tasks: the layouts.
        seed: of the weights.
    """
    core = FAMILIES[raw["model_type"]].core_config(raw)
    return _policy(new_model(core, raw, generator(seed, "initial weights")), tasks)


def blank(raw: dict[str, Any]) -> MaskedTokenModel:
    """The network of a config.json on the meta device."""
    family = FAMILIES[raw["model_type"]]
    network = without_weights(lambda: family.network(family.core_config(raw), raw))
    assert isinstance(network, MaskedTokenModel)
    return network


def _policy(network: MaskedTokenModel, tasks: Tasks) -> Policy:
    layouts: dict[str, Layout] = {"text": tasks.text}
    if tasks.image_to_text is not None:
        layouts["image_to_text"] = tasks.image_to_text
    return Policy(network, tasks.text.tokenizer, layouts, network)


def public_config(
    sizes: NetworkConfig, text: TextLayout, max_length: int, vision: VisionConfig | None = None
) -> dict[str, Any]:
    """config.json of a new network: LLaDA's, or LLaDA-V's with the sizes of a vision tower."""
    longest, rows = max(4096, max_length), text.vocab[1]
    ids = {
        "mask_token_id": text.ids["mask"],
        "eos_token_id": text.ids["eos"],
        "pad_token_id": text.ids["eos"],
    }
    if vision is not None:
        return _seeing(sizes, vision, longest) | ids | {"vocab_size": rows}
    return {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        **sizes.public(rows, longest),
        **ids,
        **BACKBONE,
    }


def _seeing(sizes: NetworkConfig, vision: VisionConfig, longest: int) -> dict[str, Any]:
    """LLaDA-V's keys; `vision` is ours, for the public tower has the sizes of its name."""
    return {
        **llada_v.FIXED,
        "model_type": "llava_llada",
        "architectures": ["LlavaLLaDAModelLM"],
        "hidden_size": sizes.d_model,
        "num_hidden_layers": sizes.n_layers,
        "num_attention_heads": sizes.n_heads,
        "num_key_value_heads": sizes.n_heads,
        "intermediate_size": sizes.mlp_hidden_size,
        "rope_theta": sizes.rope_theta,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": longest,
        "tokenizer_model_max_length": longest,
        "tie_word_embeddings": False,
        "use_mm_proj": True,
        "mm_hidden_size": vision.hidden_size,
        "image_aspect_ratio": f"anyres_max_{vision.max_tiles}",
        "image_grid_pinpoints": vision.image_grid_pinpoints,
        "vision": vision.tower,
    }
