"""Whether a tokenizer is that of a checkpoint: what config.json says of it is compared."""

from collections.abc import Mapping
from typing import NoReturn

from transformers import PreTrainedTokenizerBase

from mmrl.models.families.family import Family, read_number
from mmrl.models.layouts.layout import Layout
from mmrl.models.network.network import Network

PADDED = 1024
"""Vocabulary rows beyond the tokenizer: published checkpoints have up to 400, which make their
number a multiple of 64."""


def check_tokenizer(
    network: Network,
    family: Family,
    tokenizer: PreTrainedTokenizerBase,
    layouts: Mapping[str, Layout],
) -> None:
    """Compare the tokenizer of a directory with the config.json of its network. Raises ValueError:
    another number of tokens, or special tokens with other ids."""
    config, tokens, rows = network.public_config, len(tokenizer), network.vocab_size
    if tokens > rows:
        refuse(f"{tokens} tokens", f"{rows} vocabulary rows")
    # of codes, only config.json says where they begin
    coded = any(kind.needs_vq for kind in family.LAYOUTS.values())
    texts = read_number(config, "llm_vocab_size", tokens if coded else rows)
    if texts != tokens and (texts % 8 or not 0 < texts - tokens < PADDED):
        key = "llm_vocab_size of config.json" if coded else "vocabulary rows"
        refuse(f"{tokens} tokens", f"{texts} {key}")
    mask = next((layout.ids["mask"] for layout in layouts.values()), None)
    masked = config.get("mask_token_id")
    if mask is not None and masked not in (None, mask):
        refuse(f"the mask {mask}", f"mask_token_id {masked} in config.json")
    if (last := mask or masked or 0) >= rows:
        raise ValueError(
            f"the id of the mask token is {last}, and the checkpoint has {rows} vocabulary rows;"
            " name the right one as mask_token_id in config.json"
        )
    stated = [config.get("eos_token_id"), config.get("pad_token_id")]
    ends = {each for one in stated for each in (one if isinstance(one, list) else [one])} - {None}
    if unknown := ends - tokenizer.added_tokens_decoder.keys():
        refuse(f"no special tokens {unknown}", f"eos_token_id and pad_token_id {stated}")
    text = layouts.get("text")
    if text is not None and ends and text.ids["eos"] not in ends:
        refuse(f"the end of a text {text.ids['eos']}", f"eos_token_id and pad_token_id {stated}")


def refuse(tokenizer: str, checkpoint: str) -> NoReturn:
    """Raise a ValueError that says what each of both has."""
    raise ValueError(
        f"the tokenizer has {tokenizer} and the checkpoint has {checkpoint}: they do not belong"
        " together"
    )
