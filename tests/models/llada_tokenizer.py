"""A tokenizer with LLaDA's ids: one id per character (1000 + code point) and the special tokens."""

from collections.abc import Iterable, Mapping, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = {126080: "<|startoftext|>", 126081: "<|endoftext|>"}
SPECIAL |= {**{126084 + i: f"<|reserved_token_{i}|>" for i in range(252)}, 126336: "<|mdm_mask|>"}
SPECIAL |= {126346: "<|start_header_id|>", 126347: "<|end_header_id|>", 126348: "<|eot_id|>"}
SPECIAL_WORDS = [*list(SPECIAL.values())[:20], *list(SPECIAL.values())[-4:]]
"""Of few reserved tokens."""


LUMINA = {
    **SPECIAL,
    **{126100 + i: name for i, name in enumerate(("<system>", "</system>", "<user>", "</user>"))},
    126351: "<uncondition>",
    126355: "</answer>",
}
"""Of Lumina-DiMOO; ids of the marks of turns are unknown, and are those of the fixture."""


def llada_tokenizer(
    special: Mapping[int, str] = SPECIAL, length: int = 126349
) -> PreTrainedTokenizerFast:
    """Ids as in the fixtures; `len` is 126349 as for the public tokenizer."""
    vocabulary = {f"<unused {i}>": i for i in range(length)}
    by_id = {i: token for token, i in vocabulary.items()}
    by_id |= {1000 + point: chr(point) for point in range(32, 1000)}
    by_id |= {1000 + ord("\n"): "\n", **special}
    words = {token: i for i, token in by_id.items()}
    return _by_character(words, "<unused 0>", special.values())


def small_tokenizer() -> PreTrainedTokenizerFast:
    """The same special tokens and the printable characters, without gaps between the ids."""
    return character_tokenizer(SPECIAL_WORDS)


def character_tokenizer(special: Sequence[str]) -> PreTrainedTokenizerFast:
    """The printable characters, one id each, and special tokens after them."""
    characters = [chr(point) for point in range(32, 127)]
    words = {token: i for i, token in enumerate([*characters, *special])}
    return _by_character(words, "?", special)


def _by_character(
    words: dict[str, int], unknown: str, special: Iterable[str]
) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
