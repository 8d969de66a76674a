"""Whether a tokenizer is that of a checkpoint: what config.json says of it is compared."""

from collections.abc import Mapping

from transformers import PreTrainedTokenizerBase

from mmrl.models.families import get_family
from mmrl.models.families.family import read_number
from mmrl.models.layouts.layout import Layout
from mmrl.models.network.token_network import TokenNetwork

PADDED = 1024
"""Vocabulary rows beyond the tokenizer: published checkpoints have up to 400, which make their
number a multiple of 64."""


def check_tokenizer(
    network: TokenNetwork, tokenizer: PreTrainedTokenizerBase, layouts: Mapping[str, Layout]
) -> None:
    """Compare the tokenizer of a directory with the config.json of its network. Raises ValueError:
    another number of tokens, or special tokens with other ids."""
    config, tokens, rows = network.public_config, len(tokenizer), network.vocab_size
    # of codes, only config.json says where they begin
    coded = any(kind.needs_vq for kind in get_family(config).LAYOUTS.values())
    texts = read_number(config, "llm_vocab_size", tokens if coded else rows)
    padded = texts == tokens or (texts % 8 == 0 and 0 < texts - tokens < PADDED)
    mask = next((layout.ids["mask"] for layout in layouts.values()), None)
    masks = {None, mask, config.get("mask_token_id")}
    stated = [config.get("eos_token_id"), config.get("pad_token_id")]
    ends = {each for one in stated for each in (one if isinstance(one, list) else [one])} - {None}
    end = layouts["text"].ids["eos"] if "text" in layouts else None
    counted = "llm_vocab_size of config.json" if coded else "vocabulary rows"
    for fits, own, other in (
        (tokens <= rows, f"{tokens} tokens", f"{rows} vocabulary rows"),
        (padded, f"{tokens} tokens", f"{texts} {counted}"),
        (len(masks) < 3, f"the mask {mask}", f"mask_token_id {config.get('mask_token_id')}"),
        (not ends or end in {None, *ends}, f"the end of a text {end}", f"eos and pad id {stated}"),
    ):
        if not fits:
            raise ValueError(
                f"the tokenizer has {own} and the checkpoint has {other}: they do not belong"
                " together"
            )
