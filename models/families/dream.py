"""Dream checkpoints (Dream-org/Dream-v0-*-7B, arXiv 2508.15487) and DiffuCoder (arXiv 2506.20639).

qwen2's block with biases of queries, keys and values, bidirectional, with shifted logits: the
output at a position predicts the next one. The tokenizer is qwen2's; rows of the embedding beyond
it are never written.
"""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from mmrl.models.families import llada, llada_v
from mmrl.models.families.family import LayoutInputs, core_alone, read_number, read_sizes, token_ids
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.network.core_config import CoreConfig

KIND: str = "masked"
LAYOUTS: dict[str, type[Layout]] = {"text": TextLayout}
TOKEN_IDS = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|beginoftext|>": 151665,
    "<|mask|>": 151666,
}
"""Special tokens of the public vocabulary; DiffuCoder has another name for the first."""
KEYS = llada_v.KEYS


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json says so: its keys are qwen2's."""
    return str(config.get("model_type")).lower() == "dream"


def core_config(config: Mapping[str, Any]) -> CoreConfig:
    """The core's sizes from config.json; see `Family.network`."""
    sizes = read_sizes(config, theta=10000.0)
    return CoreConfig(**sizes, rope_fp32=False, qkv_bias=True, shift_logits=True)


network = core_alone(core_config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Text alone; see `Family.layouts`."""
    ids = read_ids(inputs.network.public_config, inputs.tokenizer)
    return {"text": llada.text_layout(inputs, ids)}


def read_ids(config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Ids of the mask and of the ends of a text and of a turn. The first two go by config.json,
    since tokenizers name them differently. Raises ValueError: one of them is not there."""
    turn = token_ids(tokenizer, {"eot": "<|im_end|>"})
    end = config.get("pad_token_id") or read_number(config, "eos_token_id", least=0)
    return {"mask": read_number(config, "mask_token_id", least=0), "eos": end, **turn}
