"""MMaDA checkpoints (Gen-Verse/MMaDA-8B-*): LLaDA's backbone with image codes in the vocabulary."""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from mmrl.models.families import llada
from mmrl.models.families.family import LayoutInputs, token_ids
from mmrl.models.layouts.image_codes_chat import ImageCodesChat
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.mmada_rows import MmadaRows
from mmrl.models.layouts.pixels import square_side, written_grid
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.layouts.text_to_image import ImageEdit, TextToImage

KEYS, TOKEN_IDS = llada.KEYS, llada.TOKEN_IDS
core_config, network = llada.core_config, llada.network
KIND: str = "masked"
LAYOUTS: dict[str, type[Layout]] = {
    "image_edit": ImageEdit,
    "image_to_text": ImageCodesChat,
    "text": TextLayout,
    "text_to_image": TextToImage,
}

_RESERVED = {"soi": 0, "eoi": 1, "t2i": 4, "mmu": 5, "pad": 9}
TOKENS = {
    **llada.TOKENS,
    **{key: f"<|reserved_token_{number}|>" for key, number in _RESERVED.items()},
    "bos": "<|startoftext|>",
    "end_header": "<|end_header_id|>",
}
"""Special tokens; those of images are LLaDA's reserved ones, so no embedding row is added."""

CHAT_TEMPLATE = (
    "{{ '<|startoftext|>' }}{% for message in messages %}{{ '<|start_header_id|>'"
    " + message['role'] + '<|end_header_id|>\\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n' }}"
)
"""As MMaDA's code renders messages: LLaDA's template, which its tokenizer has, with one newline in
place of two."""


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json has LLaDA's keys and those of image codes."""
    named = config.get("model_type") == "mmada" or "codebook_size" in config
    return named and config.keys() >= {"d_model", "n_heads"}


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Text; with an image tokenizer also images, edits of images, and text about images; see
    `Family.layouts`."""
    network, tokenizer, options, vq, _ = inputs
    text = llada.text_layout(inputs)
    if vq is None:
        return {"text": text}
    rows = build_rows(tokenizer, options.max_prompt_length)
    needed, config = rows.code_offset + vq.codebook_size, network.public_config
    if needed > network.vocab_size:
        raise ValueError(
            f"{vq.codebook_size} image codes from id {rows.code_offset} need {needed} vocabulary"
            f" rows and the checkpoint has {network.vocab_size}: tokenizer, image tokenizer"
            " and network do not belong together"
        )
    sizes = options, vq.downsample, count_codes(config)
    side, written = square_side(*sizes), written_grid(*sizes)
    mask_policy = options.mask_policy or config.get("mask_policy", "ignore")
    return {
        "image_edit": ImageEdit(rows, vq, written, mask_policy, options.image_fit),
        "image_to_text": ImageCodesChat(text, rows, vq, (side, side), options.image_fit),
        "text": text,
        "text_to_image": TextToImage(rows, vq, written, mask_policy),
    }


def build_rows(tokenizer: PreTrainedTokenizerBase, max_text_len: int) -> MmadaRows:
    """The rows of a tokenizer whose longest text has `max_text_len` tokens."""
    return MmadaRows(tokenizer, token_ids(tokenizer, TOKENS), max_text_len)


def count_codes(config: Mapping[str, Any]) -> int:
    """Codes of an image where no size is asked for. A public checkpoint draws 512 pixels, 1024
    codes; its `num_vq_tokens` is that of an earlier stage. One with a `mask_policy`, which is ours,
    has its own number there."""
    return int(config.get("num_vq_tokens", 1024)) if "mask_policy" in config else 1024
