"""A byte-level tokenizer with the special tokens of Qwen-VL."""

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

MARKS = ("endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad")
MARKS += ("image_pad", "video_pad")
SPECIAL = [f"<|{name}|>" for name in MARKS]


def tiny_config(
    kind: Any, words: PreTrainedTokenizerFast, text: dict[str, Any], vision: dict[str, Any]
) -> Any:
    """The configuration of a Qwen-VL of a few numbers, with the ids of a tokenizer.

    Args:
        kind: its class.
        words: the tokenizer.
        text: sizes of the language model but for its heads, two of 16 numbers.
        vision: sizes of the tower, which has two heads.
    """
    ids: Any = {name: words.convert_tokens_to_ids(f"<|{name}|>") for name in MARKS}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    text = {"num_attention_heads": 2, "rope_parameters": rope, **text}
    text |= {"bos_token_id": ids["im_start"], "eos_token_id": ids["im_end"]}
    return kind(
        text_config={**text, "pad_token_id": ids["endoftext"]},
        vision_config={"depth": 1, "num_heads": 2, **vision},
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
    )


def build_tokenizer(phrases: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """A token per byte, per special token and per phrase."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    inner.add_tokens([AddedToken(phrase, normalized=False) for phrase in phrases])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
    )
