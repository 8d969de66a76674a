"""A small tokenizer for the texts of a folder here: byte-level BPE with LLaDA's special tokens.

Every word given becomes one token, every digit stays one, and any other text is spelled in bytes.
The special tokens carry the names LLaDA's tokenizer gives them, so the layouts find them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = [
    "<|startoftext|>",
    "<|endoftext|>",
    *(f"<|reserved_token_{i}|>" for i in range(16)),
    "<|mdm_mask|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]


def chat_template(gap: str) -> str:
    """LLaDA's template, with `gap` (as Jinja spells it) between a header and its message."""
    return (
        "{{ '<|startoftext|>' }}{% for message in messages %}"
        f"{{{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>{gap}'"
        " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
        f"{{{{ '<|start_header_id|>assistant<|end_header_id|>{gap}' }}}}"
    )


def build(words: Iterable[str], gap: str, tags: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Train a tokenizer.

    Args:
        words: to be one token each, at the start of a text and within it.
        gap: see `chat_template`.
        tags: to be one token each wherever they stand.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    known = sorted(set(words))
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        min_frequency=2,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*known, *(f" {word}" for word in known)] * 8, trainer)
    # no special tokens: decoding keeps them, and the rewards read them
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        mask_token="<|mdm_mask|>",
        chat_template=chat_template(gap),
    )


@dataclass(kw_only=True)
class Config:
    """Settings of the scripts that train a tokenizer."""

    out: str = ""
    """Folder to write it into."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "the folder to write into")


def run(usage: Usage, train: Callable[[], PreTrainedTokenizerFast]) -> int:
    """Write a tokenizer where the command line says; return the exit status."""

    def work() -> None:
        config = load_config(Config, sys.argv[1:])
        tokenizer = train()
        tokenizer.save_pretrained(config.out)
        print(f"{len(tokenizer)} tokens in {config.out}")

    return run_command(usage, sys.argv[1:], work)
