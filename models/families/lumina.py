"""Lumina-DiMOO checkpoints (Alpha-VLLM/Lumina-DiMOO, arXiv 2510.06308).

LLaDA's backbone and tensor names; the last 8,192 rows of the vocabulary are codes of diffusers'
`VQModel`, which lies in the folder `vqvae` of a checkpoint. The tokens right before the codes mark
images and answers. `model_type` says `llada`: the class, or the number of rows, tells them apart.
"""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from mmrl.models.families import llada
from mmrl.models.families.family import LayoutInputs, token_ids
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.image_codes_chat import LuminaChat
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.lumina_rows import UNCONDITIONAL, LuminaRows
from mmrl.models.layouts.pixels import square_side, written_grid
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.layouts.text_to_image import ImageEdit, TextToImage
from mmrl.models.network.token_network import TokenNetwork

KEYS, network = llada.KEYS, llada.network
KIND: str = "masked"
LAYOUTS: dict[str, type[Layout]] = {
    "image_edit": ImageEdit,
    "image_to_text": LuminaChat,
    "text_to_image": TextToImage,
}
ARCHITECTURE = "LLaDAForMultiModalGeneration"
ROWS = 126356 + 8192
"""Embedding rows of the published checkpoint: tokens and codes."""
IMAGE_SIZE = 1024
"""Side in pixels of the images that the public script draws."""
TOKENS = {"mask": "<|mdm_mask|>", "newline": "<|reserved_token_0|>"}
TOKEN_IDS = {name: llada.TOKEN_IDS[name] for name in TOKENS.values()}
BEFORE_CODES = {"boi": -7, "eoi": -6, "null": -5, "answer": -2, "end_answer": -1}
"""Where a special token lies relative to image code 0. In the published vocabulary 126349 and
126350 begin and end an image, 126351 is `<uncondition>`, 126354 and 126355 begin and end an
answer."""


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json has LLaDA's keys, and the class or the rows of Lumina-DiMOO."""
    named = ARCHITECTURE in (config.get("architectures") or ())
    rows = config.get("embedding_size") or config.get("vocab_size")
    return llada.matches(config) and (named or rows == ROWS)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images, and text about images; see `Family.layouts`."""
    options, vq = inputs.options, inputs.vq
    if vq is None:
        token_ids(inputs.tokenizer, TOKENS)
        return {}
    sizes = options, vq.downsample, (IMAGE_SIZE // vq.downsample) ** 2
    side, grid = square_side(*sizes), written_grid(*sizes)
    rows = build_rows(inputs.network, inputs.tokenizer, vq, options.max_prompt_length, grid)
    # an answer has one end; text alone is no task of these checkpoints
    end = rows.ids["end_answer"]
    lengths = options.max_prompt_length, options.max_completion_length
    ids = {**rows.ids, "eos": end, "eot": end}
    text = TextLayout(rows.tokenizer, ids, *lengths, chat_template=False)
    policy = options.mask_policy or "key_padding"
    return {
        "image_edit": ImageEdit(rows, vq, grid, policy, options.image_fit),
        "image_to_text": LuminaChat(text, rows, vq, side, options.image_fit),
        "text_to_image": TextToImage(rows, vq, grid, policy),
    }


def build_rows(
    network: TokenNetwork,
    tokenizer: PreTrainedTokenizerBase,
    vq: ImageTokenizer,
    max_text_len: int,
    grid: tuple[int, int],
) -> LuminaRows:
    """The rows of a checkpoint; see `LuminaRows`. Raises ValueError: the tokenizer ends before the
    special tokens, or takes one of them apart."""
    offset = network.vocab_size - vq.codebook_size
    if len(tokenizer) < offset:
        raise ValueError(
            f"the checkpoint has {network.vocab_size} vocabulary rows, {vq.codebook_size} of them"
            f" image codes, and the tokenizer {len(tokenizer)} tokens: tokenizer, image tokenizer"
            " and network do not belong together"
        )
    ids = token_ids(tokenizer, TOKENS)
    ids |= {key: offset + place for key, place in BEFORE_CODES.items()}
    for text in ("</user>", UNCONDITIONAL):
        found = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        if len(found) != 1 or (text == UNCONDITIONAL and found != [ids["null"]]):
            raise ValueError(f"the tokenizer encodes {text} as {found}, not as its one token")
    return LuminaRows(tokenizer, ids, offset, max_text_len, grid)


def count_codes(config: Mapping[str, Any]) -> int:
    """Codes of an image where no size is asked for."""
    return (IMAGE_SIZE // 16) ** 2
