"""The policy behind mixed masked-token training: a MMaDA checkpoint to continue, or a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from mmrl.objectives.masked_config import MaskedConfig
from mmrl.objectives.text_rows import Tasks
from mmrl.randomness import generator
from models.families.llada import BACKBONE, core_config
from models.image_tokenizers.magvit import MagvitV2, load_vq
from models.layouts.image_codes_chat import ImageCodesChat
from models.layouts.mmada_rows import MmadaRows
from models.layouts.text_layout import TextLayout
from models.layouts.text_to_image import TextToImage
from models.loading import new_model
from models.policy import Policy, image_grid, load_policy, load_tokenizer


def new_policy(config: MaskedConfig, seed: int) -> Policy:
    """A fresh network behind the given tokenizers, with a config.json in MMaDA's format."""
    tokenizer, vq = load_tokenizer(Path(config.tokenizer)), load_vq(config.vq)
    chat = layouts_of(config, tokenizer, vq)
    raw = public_config(config, chat.layouts, vq)
    draw = generator(seed, "initial weights")
    network = new_model(core_config(raw), raw, draw)
    drawn = TextToImage(chat.layouts, vq, chat.grid, config.mask_policy)
    tasks = {"text_to_image": drawn, "image_to_text": chat, "text": chat.text}
    return Policy(network, tokenizer, tasks, network)


def layouts_of(
    config: MaskedConfig, tokenizer: PreTrainedTokenizerBase, vq: MagvitV2
) -> ImageCodesChat:
    """The layout of questions about images, which holds the others."""
    layouts = MmadaRows(tokenizer, config.max_prompt_length)
    text = TextLayout(tokenizer, config.max_prompt_length)
    grid = image_grid({}, vq, config.image_size)
    return ImageCodesChat(text, layouts, vq, grid, config.image_fit)


def tasks_of(policy: Policy) -> Tasks:
    """The layouts that answers are rendered with."""
    text, chat = policy.layouts["text"], policy.layouts["image_to_text"]
    assert isinstance(text, TextLayout) and isinstance(chat, ImageCodesChat)
    return Tasks(text, chat)


def public_config(config: MaskedConfig, layouts: MmadaRows, vq: MagvitV2) -> dict[str, Any]:
    """MMaDA's config.json of a new network; `mask_policy` is ours, read by `load_policy`."""
    ids, rows = layouts.ids, layouts.code_offset + vq.codebook_size
    return {
        "model_type": "mmada",
        "architectures": ["MMadaModelLM"],
        **config.network.public(rows, 4096),
        "new_vocab_size": rows,
        "llm_vocab_size": layouts.code_offset,
        "codebook_size": vq.codebook_size,
        "num_vq_tokens": (config.image_size // vq.downsample) ** 2,
        "num_new_special_tokens": 0,
        "mask_token_id": ids["mask"],
        "eos_token_id": ids["eos"],
        "pad_token_id": ids["eos"],
        "mask_policy": config.mask_policy,
        **BACKBONE,
    }


def old_policy(config: MaskedConfig) -> Policy:
    """The checkpoint to continue from."""
    return load_policy(
        config.model,
        vq=config.vq,
        image_size=config.image_size,
        max_prompt_length=config.max_prompt_length,
        image_fit=config.image_fit,
    )
